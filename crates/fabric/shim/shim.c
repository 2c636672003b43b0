#include "shim.h"

#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

/* Debian 12's. Newer libraries behave as this version's, when asked so. */
#define VERSION FI_VERSION(1, 17)

/* All kinds of registration that are understood below: a provider that wants another is not offered. */
#define REGISTRATION (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT)

#define QUEUES 2
#define BATCH 16

struct shunt_fabric {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *endpoint;
    struct fid_av *addresses;
    struct fid_cq *queues[QUEUES];
    /* What the provider may use as long as an operation lasts (FI_CONTEXT, FI_CONTEXT2): one for each slot. */
    struct fi_context2 *contexts[QUEUES];
    uint32_t slots[QUEUES];
};

static struct fi_info *hints_of(const struct shunt_fabric_wish *wish, uint64_t capabilities)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        return NULL;
    hints->caps = capabilities;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = REGISTRATION;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->data_progress = wish->automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_UNSPEC;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (wish->provider)
        hints->fabric_attr->prov_name = strdup(wish->provider);
    return hints;
}

/* The best that there is: with the sender told and direct access; without the one; without both. */
static int find(const struct shunt_fabric_wish *wish, struct fi_info **info)
{
    static const uint64_t ways[] = {
        FI_MSG | FI_SOURCE | FI_RMA,
        FI_MSG | FI_RMA,
        FI_MSG | FI_SOURCE,
        FI_MSG,
    };
    int code = -FI_ENODATA;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        struct fi_info *hints = hints_of(wish, ways[way]);
        if (!hints)
            return -FI_ENOMEM;
        code = fi_getinfo(VERSION, wish->node, wish->service, wish->node || wish->service ? FI_SOURCE : 0, hints, info);
        fi_freeinfo(hints);
        if (code != -FI_ENODATA)
            break;
    }
    return code;
}

static int open_queue(struct shunt_fabric *fabric, int queue, uint32_t slots, uint64_t flag)
{
    struct fi_cq_attr wanted = {.format = FI_CQ_FORMAT_MSG, .size = slots + 1, .wait_obj = FI_WAIT_FD};
    int code = fi_cq_open(fabric->domain, &wanted, &fabric->queues[queue], NULL);
    if (code == -FI_ENOSYS || code == -FI_EINVAL || code == -FI_EOPNOTSUPP) {
        wanted.wait_obj = FI_WAIT_NONE;
        code = fi_cq_open(fabric->domain, &wanted, &fabric->queues[queue], NULL);
    }
    if (code)
        return code;
    fabric->slots[queue] = slots;
    fabric->contexts[queue] = calloc(slots, sizeof(struct fi_context2));
    if (!fabric->contexts[queue])
        return -FI_ENOMEM;
    return fi_ep_bind(fabric->endpoint, &fabric->queues[queue]->fid, flag);
}

static int build(struct shunt_fabric *fabric, const struct shunt_fabric_wish *wish)
{
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    uint32_t sends, receives;
    int code = find(wish, &fabric->info);
    if (code)
        return code;
    sends = wish->sends < fabric->info->tx_attr->size ? wish->sends : (uint32_t)fabric->info->tx_attr->size;
    receives = wish->receives < fabric->info->rx_attr->size ? wish->receives : (uint32_t)fabric->info->rx_attr->size;
    if ((code = fi_fabric(fabric->info->fabric_attr, &fabric->fabric, NULL)) ||
        (code = fi_domain(fabric->fabric, fabric->info, &fabric->domain, NULL)) ||
        (code = fi_endpoint(fabric->domain, fabric->info, &fabric->endpoint, NULL)) ||
        (code = fi_av_open(fabric->domain, &table, &fabric->addresses, NULL)) ||
        (code = fi_ep_bind(fabric->endpoint, &fabric->addresses->fid, 0)) ||
        (code = open_queue(fabric, SHUNT_FABRIC_SENT, sends, FI_TRANSMIT)) ||
        (code = open_queue(fabric, SHUNT_FABRIC_RECEIVED, receives, FI_RECV)))
        return code;
    return fi_enable(fabric->endpoint);
}

int shunt_fabric_open(const struct shunt_fabric_wish *wish, struct shunt_fabric **made, struct shunt_fabric_facts *facts)
{
    struct shunt_fabric *fabric = calloc(1, sizeof *fabric);
    const struct fi_info *info;
    int code;
    if (!fabric)
        return -FI_ENOMEM;
    code = build(fabric, wish);
    if (code) {
        shunt_fabric_close(fabric);
        return code;
    }
    info = fabric->info;
    memset(facts, 0, sizeof *facts);
    strncpy(facts->provider, info->fabric_attr->prov_name, sizeof facts->provider - 1);
    facts->inject = info->tx_attr->inject_size;
    facts->largest = info->ep_attr->max_msg_size;
    facts->format = info->addr_format;
    facts->parts = (uint32_t)info->tx_attr->iov_limit;
    facts->sends = fabric->slots[SHUNT_FABRIC_SENT];
    facts->receives = fabric->slots[SHUNT_FABRIC_RECEIVED];
    facts->source = !!(info->caps & FI_SOURCE);
    facts->ordered = !!(info->tx_attr->msg_order & info->rx_attr->msg_order & FI_ORDER_SAS);
    facts->automatic = info->domain_attr->data_progress == FI_PROGRESS_AUTO;
    facts->remote = !!(info->caps & FI_RMA);
    facts->addressed = !!(info->domain_attr->mr_mode & FI_MR_VIRT_ADDR);
    for (int queue = 0; queue < QUEUES; queue++) {
        int descriptor = -1;
        if (fi_control(&fabric->queues[queue]->fid, FI_GETWAIT, &descriptor) || descriptor < 0)
            descriptor = -1;
        facts->waits[queue] = descriptor;
    }
    *made = fabric;
    return 0;
}

/* Ends all operations. Memory that is bound to the endpoint has to go before it, other memory after what uses it. */
void shunt_fabric_shut(struct shunt_fabric *fabric)
{
    if (fabric->info->domain_attr->mr_mode & FI_MR_ENDPOINT)
        return;
    fi_close(&fabric->endpoint->fid);
    fabric->endpoint = NULL;
}

void shunt_fabric_close(struct shunt_fabric *fabric)
{
    if (fabric->endpoint)
        fi_close(&fabric->endpoint->fid);
    for (int queue = 0; queue < QUEUES; queue++) {
        if (fabric->queues[queue])
            fi_close(&fabric->queues[queue]->fid);
        free(fabric->contexts[queue]);
    }
    if (fabric->addresses)
        fi_close(&fabric->addresses->fid);
    if (fabric->domain)
        fi_close(&fabric->domain->fid);
    if (fabric->fabric)
        fi_close(&fabric->fabric->fid);
    if (fabric->info)
        fi_freeinfo(fabric->info);
    free(fabric);
}

int shunt_fabric_name(struct shunt_fabric *fabric, void *bytes, size_t *length)
{
    return fi_getname(&fabric->endpoint->fid, bytes, length);
}

int shunt_fabric_insert(struct shunt_fabric *fabric, const void *bytes, uint64_t *address)
{
    fi_addr_t inserted = FI_ADDR_NOTAVAIL;
    int count = fi_av_insert(fabric->addresses, bytes, 1, &inserted, 0, NULL);
    if (count < 0)
        return count;
    if (count != 1 || inserted == FI_ADDR_NOTAVAIL)
        return -FI_EADDRNOTAVAIL;
    *address = inserted;
    return 0;
}

int shunt_fabric_remove(struct shunt_fabric *fabric, uint64_t address)
{
    fi_addr_t removed = address;
    return fi_av_remove(fabric->addresses, &removed, 1, 0);
}

int shunt_fabric_register(struct shunt_fabric *fabric, void *base, size_t length, int rights, uint64_t key,
                          struct shunt_fabric_region *region)
{
    uint64_t access = rights == SHUNT_FABRIC_LOCAL ? FI_SEND | FI_RECV | FI_WRITE | FI_READ
                      : rights == SHUNT_FABRIC_READ ? FI_REMOTE_READ
                                                    : FI_REMOTE_READ | FI_REMOTE_WRITE;
    struct fid_mr *memory;
    int code = fi_mr_reg(fabric->domain, base, length, access, 0, key, 0, &memory, NULL);
    if (code)
        return code;
    if (fabric->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        if ((code = fi_mr_bind(memory, &fabric->endpoint->fid, 0)) || (code = fi_mr_enable(memory))) {
            fi_close(&memory->fid);
            return code;
        }
    }
    region->handle = memory;
    region->descriptor = fi_mr_desc(memory);
    region->key = fi_mr_key(memory);
    return 0;
}

int shunt_fabric_unregister(void *handle)
{
    return fi_close(&((struct fid_mr *)handle)->fid);
}

ssize_t shunt_fabric_inject(struct shunt_fabric *fabric, const void *bytes, size_t length, uint64_t to)
{
    return fi_inject(fabric->endpoint, bytes, length, to);
}

ssize_t shunt_fabric_send(struct shunt_fabric *fabric, const struct iovec *parts, size_t count, void *descriptor, uint64_t to,
                          uint32_t slot)
{
    void *descriptors[8] = {descriptor, descriptor, descriptor, descriptor, descriptor, descriptor, descriptor, descriptor};
    return fi_sendv(fabric->endpoint, parts, descriptors, count, to, &fabric->contexts[SHUNT_FABRIC_SENT][slot]);
}

ssize_t shunt_fabric_receive(struct shunt_fabric *fabric, void *bytes, size_t length, void *descriptor, uint32_t slot)
{
    return fi_recv(fabric->endpoint, bytes, length, descriptor, FI_ADDR_UNSPEC, &fabric->contexts[SHUNT_FABRIC_RECEIVED][slot]);
}

/* Over when the bytes lie in the peer's memory: what is sent after that finds them there. */
ssize_t shunt_fabric_write(struct shunt_fabric *fabric, const struct iovec *part, void *descriptor, uint64_t to,
                           uint64_t address, uint64_t key, uint32_t slot)
{
    struct fi_rma_iov there = {.addr = address, .len = part->iov_len, .key = key};
    struct fi_msg_rma message = {
        .msg_iov = part,
        .desc = &descriptor,
        .iov_count = 1,
        .addr = to,
        .rma_iov = &there,
        .rma_iov_count = 1,
        .context = &fabric->contexts[SHUNT_FABRIC_SENT][slot],
    };
    return fi_writemsg(fabric->endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

static uint32_t slot_of(const struct shunt_fabric *fabric, int queue, const void *context)
{
    uintptr_t offset = (uintptr_t)context - (uintptr_t)fabric->contexts[queue];
    return (uint32_t)(offset / sizeof(struct fi_context2));
}

static ssize_t failure(struct shunt_fabric *fabric, int queue, struct shunt_fabric_completion *completion)
{
    struct fi_cq_err_entry entry = {0};
    ssize_t count = fi_cq_readerr(fabric->queues[queue], &entry, 0);
    if (count < 1)
        return count;
    completion->slot = entry.op_context ? slot_of(fabric, queue, entry.op_context) : UINT32_MAX;
    completion->error = entry.err ? entry.err : FI_EOTHER;
    completion->length = entry.len;
    completion->source = FI_ADDR_NOTAVAIL;
    return 1;
}

ssize_t shunt_fabric_completions(struct shunt_fabric *fabric, int queue, struct shunt_fabric_completion *completions, size_t most)
{
    struct fi_cq_msg_entry entries[BATCH];
    fi_addr_t sources[BATCH];
    ssize_t count;
    for (size_t index = 0; index < BATCH; index++)
        sources[index] = FI_ADDR_NOTAVAIL;
    if (queue == SHUNT_FABRIC_RECEIVED && (fabric->info->caps & FI_SOURCE))
        count = fi_cq_readfrom(fabric->queues[queue], entries, most < BATCH ? most : BATCH, sources);
    else
        count = fi_cq_read(fabric->queues[queue], entries, most < BATCH ? most : BATCH);
    if (count == -FI_EAGAIN)
        return 0;
    if (count == -FI_EAVAIL)
        return failure(fabric, queue, completions);
    for (ssize_t index = 0; index < count; index++) {
        completions[index].slot = slot_of(fabric, queue, entries[index].op_context);
        completions[index].error = 0;
        completions[index].length = entries[index].len;
        completions[index].source = sources[index];
    }
    return count;
}

/* Whether something can be read from a queue: 1, 0. Also moves what the provider has to move. From any thread. */
int shunt_fabric_waits(struct shunt_fabric *fabric, int queue)
{
    return fi_cq_read(fabric->queues[queue], NULL, 0) != -FI_EAGAIN;
}

int shunt_fabric_try_wait(struct shunt_fabric *fabric)
{
    struct fid *all[QUEUES] = {&fabric->queues[0]->fid, &fabric->queues[1]->fid};
    return fi_trywait(fabric->fabric, all, QUEUES);
}

/* Names of the providers that can carry endpoints here, each followed by a line feed; the number of bytes. */
size_t shunt_fabric_providers(char *text, size_t room)
{
    struct shunt_fabric_wish any = {0};
    struct fi_info *hints = hints_of(&any, FI_MSG), *found = NULL;
    size_t used = 0;
    if (!hints)
        return 0;
    if (!fi_getinfo(VERSION, NULL, NULL, 0, hints, &found)) {
        for (const struct fi_info *info = found; info; info = info->next) {
            const char *name = info->fabric_attr->prov_name;
            size_t length = strlen(name);
            int known = 0;
            for (const struct fi_info *before = found; before != info; before = before->next)
                known |= !strcmp(before->fabric_attr->prov_name, name);
            if (known || used + length + 1 > room)
                continue;
            memcpy(text + used, name, length);
            text[used + length] = '\n';
            used += length + 1;
        }
        fi_freeinfo(found);
    }
    fi_freeinfo(hints);
    return used;
}

