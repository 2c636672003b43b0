/* What src/pmix/library.rs believes of PMIx's structures, functions and numbers, against the public header: compiled, never run. */
#include <pmix.h>
#include <stddef.h>

_Static_assert(sizeof(pmix_proc_t) == SHUNT_PROCESS, "pmix_proc_t");
_Static_assert(offsetof(pmix_proc_t, nspace) == 0 && sizeof(pmix_nspace_t) == SHUNT_PROCESS_RANK, "nspace");
_Static_assert(offsetof(pmix_proc_t, rank) == SHUNT_PROCESS_RANK && sizeof(pmix_rank_t) == 4, "rank");
_Static_assert(sizeof(pmix_value_t) == SHUNT_VALUE, "pmix_value_t");
_Static_assert(offsetof(pmix_value_t, type) == 0 && sizeof(pmix_data_type_t) == 2, "type");
_Static_assert(offsetof(pmix_value_t, data) == SHUNT_VALUE_DATA, "data");
_Static_assert(sizeof(pmix_status_t) == sizeof(int), "plain types");
_Static_assert((PMIX_RANK_WILDCARD) == SHUNT_WILDCARD, "wildcard");
_Static_assert(PMIX_STRING == SHUNT_STRING && PMIX_UINT32 == SHUNT_UINT32, "numbers");
_Static_assert(PMIX_SUCCESS == 0, "success");
_Static_assert(sizeof(PMIX_JOB_SIZE) == sizeof("pmix.job.size") && sizeof(PMIX_LOCAL_PEERS) == sizeof("pmix.lpeers"), "keys");

/* A pointer of another type than the function's is an error. */
pmix_status_t (*const init)(pmix_proc_t *, pmix_info_t *, size_t) = PMIx_Init;
pmix_status_t (*const get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_t **) = PMIx_Get;
pmix_status_t (*const end)(int, const char *, pmix_proc_t *, size_t) = PMIx_Abort;
pmix_status_t (*const finalize)(const pmix_info_t *, size_t) = PMIx_Finalize;
