//! What a program that is started finds in its environment.

use super::*;
use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

const OURS: &str = "/usr/lib/shunt/libshunt.so";
const INHERIT: &CStr = c"SHUNT_INHERIT=L902,R901";

/// An environment as a program gives it.
struct Given {
    _strings: Vec<CString>,
    array: Vec<*const c_char>,
}

fn given(strings: &[&str]) -> Given {
    let strings: Vec<CString> = strings.iter().map(|text| CString::new(*text).unwrap()).collect();
    let array = strings.iter().map(|text| text.as_ptr()).chain([core::ptr::null()]).collect();
    Given { _strings: strings, array }
}

fn preloaded(value: &str) -> Preload {
    let mut preload = Preload::none();
    preload.note(value.as_bytes());
    preload
}

fn strings(array: Strings) -> Vec<String> {
    // SAFETY: an array of C strings that ends with null.
    let text = |i| unsafe { (*array.add(i)).as_ref().map(|text| CStr::from_ptr(text).to_str().unwrap().to_owned()) };
    (0..).map_while(text).collect()
}

/// The next program's environment, where this one was started with `preload`.
fn next(strings_given: &[&str], preload: &str) -> Vec<String> {
    let (given, preload) = (given(strings_given), preloaded(preload));
    // SAFETY: made above; both outlive it.
    strings(unsafe { Environment::new(given.array.as_ptr(), &preload, INHERIT) }.unwrap().strings())
}

#[test]
fn a_variable_is_found_by_its_whole_name() {
    let given = given(&["SHUNT_LOGS=no", "SHUNT_LOG=all", "XSHUNT_LOG=no"]);
    // SAFETY: made above.
    assert_eq!(unsafe { variable(given.array.as_ptr(), "SHUNT_LOG") }, Some(&b"all"[..]));
}

#[test]
fn the_first_of_two_variables_of_one_name_counts_as_for_getenv() {
    let given = given(&["A=1", "A=2"]);
    // SAFETY: made above.
    assert_eq!(unsafe { variable(given.array.as_ptr(), "A") }, Some(&b"1"[..]));
}

#[test]
fn a_string_without_an_equals_sign_is_no_variable() {
    let given = given(&["A", "AB"]);
    // SAFETY: made above.
    assert_eq!(unsafe { variable(given.array.as_ptr(), "A") }, None);
}

#[test]
fn an_empty_value_is_a_value() {
    let given = given(&["A="]);
    // SAFETY: made above.
    assert_eq!(unsafe { variable(given.array.as_ptr(), "A") }, Some(&b""[..]));
}

#[test]
fn without_an_environment_there_is_no_variable() {
    // SAFETY: null is allowed.
    assert_eq!(unsafe { variable(core::ptr::null(), "A") }, None);
}

#[test]
fn what_is_inherited_stands_behind_what_was_given() {
    let preload = format!("LD_PRELOAD={OURS}");
    assert_eq!(next(&["PATH=/bin", &preload], OURS), ["PATH=/bin", &preload, INHERIT.to_str().unwrap()]);
}

#[test]
fn what_an_earlier_program_inherited_is_not_passed_on() {
    let made = next(&["SHUNT_INHERIT=L17", "A=1", "SHUNT_INHERIT=L18"], "");
    assert_eq!(made, ["A=1", INHERIT.to_str().unwrap()]);
}

#[test]
fn other_variables_of_shunt_are_passed_on() {
    assert!(next(&["SHUNT_LOG=all"], OURS).contains(&"SHUNT_LOG=all".to_owned()));
}

#[test]
fn a_cleaned_environment_gets_the_library_again() {
    assert_eq!(next(&[], OURS), [INHERIT.to_str().unwrap(), &format!("LD_PRELOAD={OURS}")]);
}

#[test]
fn no_environment_at_all_is_an_empty_one() {
    // SAFETY: null is allowed.
    let made = unsafe { Environment::new(core::ptr::null(), &preloaded(OURS), INHERIT) }.unwrap();
    assert_eq!(strings(made.strings()).len(), 2);
}

#[test]
fn a_cleaned_environment_gets_all_that_was_preloaded() {
    let all = format!("/lib/libfirst.so:{OURS}");
    assert!(next(&[], &all).contains(&format!("LD_PRELOAD={all}")));
}

#[test]
fn a_library_that_the_program_preloads_stays_the_first() {
    let made = next(&["LD_PRELOAD=/lib/libfaketime.so"], &format!("/lib/libother.so:{OURS}"));
    assert_eq!(made[0], format!("LD_PRELOAD=/lib/libfaketime.so:{OURS}"));
}

#[test]
fn an_empty_preload_gets_the_library_behind_a_separator() {
    assert_eq!(next(&["LD_PRELOAD="], OURS)[0], format!("LD_PRELOAD=:{OURS}"));
}

#[test]
fn each_of_several_preloads_gets_the_library() {
    let long = format!("LD_PRELOAD=/{}.so", "x".repeat(20_000));
    let made = next(&["LD_PRELOAD=/a.so", &long, "A=1", "LD_PRELOAD=/b.so"], OURS);
    let expected =
        [format!("LD_PRELOAD=/a.so:{OURS}"), format!("{long}:{OURS}"), "A=1".into(), format!("LD_PRELOAD=/b.so:{OURS}")];
    assert_eq!(made[..4], expected);
}

#[test]
fn a_preload_that_only_holds_the_librarys_name_gets_it() {
    for other in [format!("{OURS}.old"), format!("/opt{OURS}")] {
        assert_eq!(next(&[&format!("LD_PRELOAD={other}")], OURS)[0], format!("LD_PRELOAD={other}:{OURS}"));
    }
}

#[test]
fn a_variable_whose_name_only_begins_so_is_passed_on() {
    assert!(next(&["SHUNT_INHERITANCE=1"], OURS).contains(&"SHUNT_INHERITANCE=1".to_owned()));
}

#[test]
fn a_preload_that_names_the_library_stays_as_it_is() {
    let spaced = format!("LD_PRELOAD=/lib/liba.so {OURS}");
    assert_eq!(next(&[&spaced], OURS)[0], spaced);
}

#[test]
fn a_process_without_preload_adds_none() {
    assert_eq!(next(&["A=1"], ""), ["A=1", INHERIT.to_str().unwrap()]);
}

#[test]
fn the_given_strings_are_passed_by_address_and_not_copied() {
    let (given, preload) = (given(&["A=1", "B=2"]), preloaded(OURS));
    // SAFETY: made above.
    let made = unsafe { Environment::new(given.array.as_ptr(), &preload, INHERIT) }.unwrap();
    // SAFETY: it has at least these two.
    assert_eq!(unsafe { [*made.strings(), *made.strings().add(1)] }, given.array[..2]);
}

/// Faults of copies are told, as in a process that has the library; all others end it.
fn tell_faults() {
    use shunt_calls::libc::{self, siginfo_t, ucontext_t};
    unsafe extern "C" fn fault(number: core::ffi::c_int, information: *mut siginfo_t, context: *mut ucontext_t) {
        // SAFETY: what the kernel gave.
        unsafe {
            if !user::resolve(information, context) {
                libc::signal(number, libc::SIG_DFL);
            }
        }
    }
    // SAFETY: all-zero but for these two is an action without a mask.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (fault as *const () as usize, libc::SA_SIGINFO);
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, core::ptr::null_mut()), 0);
    }
}

#[test]
fn a_string_that_cannot_be_read_is_told() {
    tell_faults();
    let array = [c"A=1".as_ptr(), 8 as *const c_char, core::ptr::null()];
    // SAFETY: that address is the kernel's never to map.
    unsafe {
        assert_eq!(count(array.as_ptr()), Err(Errno(shunt_calls::libc::EFAULT)));
        assert!(Environment::new(array.as_ptr(), &preloaded(OURS), INHERIT).is_err());
    }
}

#[test]
fn an_array_that_cannot_be_read_is_told() {
    tell_faults();
    // SAFETY: as above.
    assert_eq!(unsafe { count(8 as Strings) }, Err(Errno(shunt_calls::libc::EFAULT)));
}

#[test]
fn strings_are_counted_up_to_the_null() {
    // SAFETY: made here.
    assert_eq!(unsafe { count(given(&["A=1", "", "B"]).array.as_ptr()) }, Ok(3));
}

#[test]
fn the_own_entry_is_the_one_whose_file_is_named_so() {
    let found = |value: &str| String::from_utf8(preloaded(value).own_entry().to_vec()).unwrap();
    assert_eq!(found("/libshunt/libother.so:/opt/libshunt-2.so /x.so"), "/opt/libshunt-2.so");
    assert_eq!(found("libshunt.so"), "libshunt.so");
    assert_eq!(found("/libshunt/libother.so"), "");
}

#[test]
fn a_preload_too_long_to_be_remembered_is_forgotten_whole() {
    assert_eq!(preloaded(&"x".repeat(4084)).own_entry(), b"");
    assert!(next(&[], &"y".repeat(4084)).iter().all(|text| !text.starts_with("LD_PRELOAD=")));
    assert!(next(&[], &"y".repeat(4083)).iter().any(|text| text.len() == 4083 + PRELOAD.len()));
}

/// What `env` prints that is started with an environment.
fn as_env_tells(environment: Strings) -> Vec<String> {
    use shunt_calls::libc;
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer: OwnedFd = writer.into();
    let actions = crate::actions::FileActions::putting(writer.as_raw_fd(), 1, core::iter::once(2)).unwrap();
    let arguments = [c"env".as_ptr().cast_mut(), c"-0".as_ptr().cast_mut(), core::ptr::null_mut()];
    let mut child = 0;
    // SAFETY: as posix_spawn(3); everything outlives the call.
    let error = unsafe {
        let actions = actions.address().cast();
        libc::posix_spawn(
            &mut child,
            c"/usr/bin/env".as_ptr(),
            actions,
            core::ptr::null(),
            arguments.as_ptr(),
            environment.cast(),
        )
    };
    assert_eq!(error, 0);
    drop(writer);
    let mut told = String::new();
    reader.read_to_string(&mut told).unwrap();
    // SAFETY: a child of this test's.
    unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
    told.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn a_program_that_is_started_finds_exactly_this_environment() {
    let (given, preload) = (given(&["A=1", "LD_PRELOAD=", "A=2", "no sign"]), preloaded(OURS));
    // SAFETY: made above.
    let made = unsafe { Environment::new(given.array.as_ptr(), &preload, INHERIT) }.unwrap();
    let told = as_env_tells(made.strings());
    assert_eq!(told, ["A=1", &format!("LD_PRELOAD=:{OURS}"), "A=2", "no sign", INHERIT.to_str().unwrap()]);
}
