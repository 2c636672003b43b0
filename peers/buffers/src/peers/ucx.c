/* UCX by tags. Its headers are macros and inline functions, hence in C. Results below zero are ucs_status_t. */
#include <stdint.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

struct end {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h peer;
    ucp_address_t *address;
    size_t address_length;
};

int ucx_make(struct end **made) {
    struct end *end = calloc(1, sizeof *end);
    ucp_config_t *config;
    ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t of_worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucs_status_t status;

    if (!end) return UCS_ERR_NO_MEMORY;
    if ((status = ucp_config_read(NULL, NULL, &config))) return status;
    status = ucp_init(&parameters, config, &end->context);
    ucp_config_release(config);
    if (status) return status;
    if ((status = ucp_worker_create(end->context, &of_worker, &end->worker))) return status;
    if ((status = ucp_worker_get_address(end->worker, &end->address, &end->address_length))) return status;
    *made = end;
    return UCS_OK;
}

const void *ucx_address(const struct end *end, size_t *length) {
    *length = end->address_length;
    return end->address;
}

int ucx_join(struct end *end, const void *address) {
    ucp_ep_params_t parameters = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    return ucp_ep_create(end->worker, &parameters, &end->peer);
}

void ucx_progress(struct end *end) {
    ucp_worker_progress(end->worker);
}

/* 0: done; 1: under way, by *request; below zero: failed. */
static int begun(ucs_status_ptr_t request, void **kept) {
    *kept = NULL;
    if (!request) return 0;
    if (UCS_PTR_IS_ERR(request)) return UCS_PTR_STATUS(request);
    *kept = request;
    return 1;
}

int ucx_send(struct end *end, const void *bytes, size_t length, void **request) {
    ucp_request_param_t parameters = {.op_attr_mask = 0};
    return begun(ucp_tag_send_nbx(end->peer, bytes, length, 1, &parameters), request);
}

int ucx_receive(struct end *end, void *bytes, size_t room, void **request) {
    ucp_request_param_t parameters = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    return begun(ucp_tag_recv_nbx(end->worker, bytes, room, 1, UINT64_MAX, &parameters), request);
}

/* As above; a request that is done is gone. `length`: of what was received, or NULL. */
int ucx_check(void *request, size_t *length) {
    ucp_tag_recv_info_t info;
    ucs_status_t status = length ? ucp_tag_recv_request_test(request, &info) : ucp_request_check_status(request);
    if (status == UCS_INPROGRESS) return 1;
    if (length && !status) *length = info.length;
    ucp_request_free(request);
    return status;
}
