//! The header has every function of the specification, OpenSHMEM 1.5, by its name. The lists are written after the specification's tables of
//! types and its prototypes, and not after the header's own table.

use std::collections::BTreeSet;

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Each of `patterns` with each of `types` for `T`.
fn each(names: &mut BTreeSet<String>, types: &[&str], patterns: &str) {
    for pattern in words(patterns) {
        names.extend(types.iter().map(|of| pattern.replace('T', of)));
    }
}

/// The same, also with a context.
fn with_context(names: &mut BTreeSet<String>, types: &[&str], patterns: &str) {
    each(names, types, patterns);
    let contexts = words(patterns).iter().map(|name| name.replacen("shmem_", "shmem_ctx_", 1)).collect::<Vec<_>>().join(" ");
    each(names, types, &contexts);
}

fn specified() -> BTreeSet<String> {
    let fixed = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 size";
    // Table 5, standard types of remote memory access.
    let rma =
        format!("float double longdouble char schar short int long longlong uchar ushort uint ulong ulonglong {fixed} ptrdiff");
    // Tables 6 to 8, types of atomic operations: standard, extended, of bits.
    let standard = words("int long longlong uint ulong ulonglong int32 int64 uint32 uint64 size ptrdiff");
    let extended = [&standard[..], &["float", "double"]].concat();
    let bits = words("uint ulong ulonglong int32 int64 uint32 uint64");
    // Table 10 and 11, types of reductions.
    let logical = format!("uchar ushort uint ulong ulonglong {fixed}");
    let ordered =
        format!("char schar short int long longlong ptrdiff uchar ushort uint ulong ulonglong {fixed} float double longdouble");
    let summed = format!("{ordered} complexd complexf");
    // Table 12, types of point-to-point synchronization.
    let waited = words("short int long longlong ushort uint ulong ulonglong int32 int64 uint32 uint64 size ptrdiff");
    let sizes = words("8 16 32 64 128");
    let (rma, logical, ordered, summed) = (words(&rma), words(&logical), words(&ordered), words(&summed));

    let mut names = BTreeSet::new();
    let alone = "shmem_init shmem_my_pe shmem_n_pes shmem_finalize shmem_global_exit shmem_pe_accessible shmem_addr_accessible shmem_ptr
        shmem_info_get_version shmem_info_get_name shmem_init_thread shmem_query_thread shmem_malloc shmem_free shmem_realloc shmem_align
        shmem_malloc_with_hints shmem_calloc shmem_team_my_pe shmem_team_n_pes shmem_team_get_config shmem_team_translate_pe
        shmem_team_split_strided shmem_team_split_2d shmem_team_destroy shmem_ctx_create shmem_team_create_ctx shmem_ctx_destroy
        shmem_ctx_get_team shmem_signal_fetch shmem_signal_wait_until shmem_barrier_all shmem_barrier shmem_sync_all shmem_sync
        shmem_team_sync shmem_broadcastmem shmem_collectmem shmem_fcollectmem shmem_alltoallmem shmem_alltoallsmem shmem_fence shmem_quiet
        shmem_ctx_fence shmem_ctx_quiet shmem_set_lock shmem_test_lock shmem_clear_lock shmem_pcontrol";
    names.extend(words(alone).iter().map(|name| (*name).to_owned()));
    let deprecated = "start_pes _my_pe _num_pes shmalloc shfree shrealloc shmemalign shmem_clear_cache_inv shmem_set_cache_inv
        shmem_clear_cache_line_inv shmem_set_cache_line_inv shmem_udcflush shmem_udcflush_line shmem_wait shmem_wait_until";
    names.extend(words(deprecated).iter().map(|name| (*name).to_owned()));
    with_context(
        &mut names,
        &[""],
        "shmem_putmem shmem_getmem shmem_putmem_nbi shmem_getmem_nbi shmem_putmem_signal shmem_putmem_signal_nbi",
    );
    let of_size =
        "shmem_putT shmem_getT shmem_iputT shmem_igetT shmem_putT_nbi shmem_getT_nbi shmem_putT_signal shmem_putT_signal_nbi";
    with_context(&mut names, &sizes, of_size);
    let of_type =
        "shmem_T_put shmem_T_get shmem_T_p shmem_T_g shmem_T_iput shmem_T_iget shmem_T_put_nbi shmem_T_get_nbi shmem_T_put_signal
        shmem_T_put_signal_nbi";
    with_context(&mut names, &rma, of_type);
    let values = "shmem_T_atomic_fetch shmem_T_atomic_set shmem_T_atomic_swap shmem_T_atomic_fetch_nbi shmem_T_atomic_swap_nbi";
    with_context(&mut names, &extended, values);
    let counts =
        "shmem_T_atomic_compare_swap shmem_T_atomic_fetch_inc shmem_T_atomic_inc shmem_T_atomic_fetch_add shmem_T_atomic_add
        shmem_T_atomic_compare_swap_nbi shmem_T_atomic_fetch_inc_nbi shmem_T_atomic_fetch_add_nbi";
    with_context(&mut names, &standard, counts);
    for operation in ["and", "or", "xor"] {
        let patterns = "shmem_T_atomic_O shmem_T_atomic_fetch_O shmem_T_atomic_fetch_O_nbi".replace('O', operation);
        with_context(&mut names, &bits, &patterns);
        each(&mut names, &logical, &format!("shmem_T_{operation}_reduce"));
        each(&mut names, &words("short int long longlong"), &format!("shmem_T_{operation}_to_all"));
    }
    each(&mut names, &rma, "shmem_T_alltoall shmem_T_alltoalls shmem_T_broadcast shmem_T_collect shmem_T_fcollect");
    each(&mut names, &["32", "64"], "shmem_broadcastT shmem_collectT shmem_fcollectT shmem_alltoallT shmem_alltoallsT");
    for operation in ["min", "max"] {
        each(&mut names, &ordered, &format!("shmem_T_{operation}_reduce"));
        each(&mut names, &words("short int long longlong float double longdouble"), &format!("shmem_T_{operation}_to_all"));
    }
    for operation in ["sum", "prod"] {
        each(&mut names, &summed, &format!("shmem_T_{operation}_reduce"));
        let types = words("short int long longlong float double longdouble complexf complexd");
        each(&mut names, &types, &format!("shmem_T_{operation}_to_all"));
    }
    for call in ["wait_until", "test"] {
        let patterns = "shmem_T_C shmem_T_C_all shmem_T_C_any shmem_T_C_some shmem_T_C_all_vector shmem_T_C_any_vector shmem_T_C_some_vector";
        each(&mut names, &waited, &patterns.replace('C', call));
    }
    // Deprecated.
    each(&mut names, &words("short int long longlong"), "shmem_T_wait");
    let old = words("int long longlong");
    each(&mut names, &old, "shmem_T_cswap shmem_T_finc shmem_T_inc shmem_T_fadd shmem_T_add");
    each(&mut names, &[&old[..], &["float", "double"]].concat(), "shmem_T_swap shmem_T_fetch shmem_T_set");
    names
}

const HEADER: &str = include_str!("../include/shmem.h");

fn identifiers(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect()
}

#[test]
fn every_function_of_the_specification_is_there() {
    let declared = identifiers(HEADER);
    let names = specified();
    let missing: Vec<_> = names.iter().filter(|name| !declared.contains(name.as_str())).collect();
    assert!(names.len() > 1500, "{}", names.len());
    assert!(missing.is_empty(), "{missing:?}");
}

/// C11's generic names.
#[test]
fn every_generic_name_is_there() {
    let names = "put get p g iput iget put_nbi get_nbi put_signal put_signal_nbi atomic_fetch atomic_set atomic_compare_swap atomic_swap
        atomic_fetch_inc atomic_inc atomic_fetch_add atomic_add atomic_fetch_and atomic_and atomic_fetch_or atomic_or atomic_fetch_xor
        atomic_xor atomic_fetch_nbi atomic_compare_swap_nbi atomic_swap_nbi atomic_fetch_inc_nbi atomic_fetch_add_nbi
        atomic_fetch_and_nbi atomic_fetch_or_nbi atomic_fetch_xor_nbi sync alltoall alltoalls broadcast collect fcollect and_reduce
        or_reduce xor_reduce max_reduce min_reduce sum_reduce prod_reduce wait_until wait_until_all wait_until_any wait_until_some
        wait_until_all_vector wait_until_any_vector wait_until_some_vector test test_all test_any test_some test_all_vector
        test_any_vector test_some_vector cswap swap finc inc fadd add fetch set";
    let defined: BTreeSet<&str> = HEADER
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define "))
        .map(|rest| rest.trim_start().split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or(""))
        .collect();
    let missing: Vec<_> = words(names).into_iter().filter(|name| !defined.contains(format!("shmem_{name}").as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The manual page of Split-C's header has each of its names, and no other.
#[test]
fn the_page_of_split_c_has_its_names() {
    let read = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (header, page) = (read("include/split-c.h"), read("../../docs/man/shunt_split_c.3"));
    let of = |text: &str| -> BTreeSet<String> {
        let is_name = |word: &&str| word.starts_with("sc_") && word.len() > 3;
        text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(is_name).map(str::to_owned).collect()
    };
    // What defines a name: a function's head, or a macro.
    let mut defined = BTreeSet::new();
    for line in header.lines() {
        let head =
            line.strip_prefix("#define ").or_else(|| line.starts_with("static inline ").then(|| line.split('(').next().unwrap()));
        defined.extend(head.and_then(|head| of(head.split('(').next().unwrap()).pop_last()));
        // Those of the reductions are told once for all operations.
        if let Some(words) = line.strip_prefix("SC_REDUCTIONS(") {
            let name = words.rsplit(", ").nth(1).unwrap();
            assert!(page.contains(name), "{name}");
        }
    }
    // Parts of macros, and what only they call.
    let inner =
        |name: &String| name.ends_with("_1") || name.ends_with("_2") || name == "sc_all_told_truth" || name == "sc_global";
    let defined: BTreeSet<String> = defined.into_iter().filter(|name| !inner(name)).collect();
    let told: BTreeSet<String> = of(&page).into_iter().filter(|name| name != "sc_global" && !name.ends_with("_OP")).collect();
    assert_eq!(defined, told);
}
