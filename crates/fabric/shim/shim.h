/* What the fabric device asks of libfabric: its API is inline functions over tables of pointers, which only C can call by
 * name. Nothing here decides anything. All calls answer 0 or more, or a negative code of fi_errno(3). The layouts are repeated
 * in src/foreign.rs. */
#ifndef SHUNT_FABRIC_SHIM_H
#define SHUNT_FABRIC_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct shunt_fabric;

/* What is asked for: fi_getinfo(3). */
struct shunt_fabric_wish {
    const char *provider;
    const char *node;    /* own address as text, or NULL: the provider's choice */
    const char *service; /* own port, or NULL */
    uint32_t automatic;  /* FI_PROGRESS_AUTO is wanted */
    uint32_t sends;      /* operations under way at most */
    uint32_t receives;
};

/* What was got. */
struct shunt_fabric_facts {
    char provider[64];
    uint64_t inject;  /* bytes of a message that is taken at once */
    uint64_t largest; /* bytes of a message */
    uint32_t format;  /* of addresses: FI_SOCKADDR_IN, ... */
    uint32_t parts;   /* a message may be gathered from */
    uint32_t sends;
    uint32_t receives;
    uint32_t source;    /* the sender of a message is told */
    uint32_t ordered;   /* messages keep their order: FI_ORDER_SAS */
    uint32_t automatic; /* FI_PROGRESS_AUTO */
    uint32_t remote;    /* memory may be written by peers: FI_RMA */
    uint32_t addressed; /* by its address, not by offset: FI_MR_VIRT_ADDR */
    int32_t waits[2];   /* descriptors of the completion queues (send, receive), or -1 */
};

/* An operation that is over. */
struct shunt_fabric_completion {
    uint64_t length;
    uint64_t source; /* fi_addr_t, or all ones */
    uint32_t slot;
    int32_t error; /* 0, or a positive code of fi_errno(3) */
};

/* Memory that the interface may use, or peers may write. */
struct shunt_fabric_region {
    void *handle;
    void *descriptor;
    uint64_t key;
};

enum { SHUNT_FABRIC_SENT, SHUNT_FABRIC_RECEIVED };
enum { SHUNT_FABRIC_LOCAL = 0, SHUNT_FABRIC_READ = 1, SHUNT_FABRIC_WRITE = 3 };

int shunt_fabric_open(const struct shunt_fabric_wish *, struct shunt_fabric **, struct shunt_fabric_facts *);
void shunt_fabric_shut(struct shunt_fabric *);
void shunt_fabric_close(struct shunt_fabric *);
int shunt_fabric_name(struct shunt_fabric *, void *, size_t *);
int shunt_fabric_insert(struct shunt_fabric *, const void *, uint64_t *);
int shunt_fabric_remove(struct shunt_fabric *, uint64_t);
int shunt_fabric_register(struct shunt_fabric *, void *, size_t, int rights, uint64_t key, struct shunt_fabric_region *);
int shunt_fabric_unregister(void *handle);
ssize_t shunt_fabric_inject(struct shunt_fabric *, const void *, size_t, uint64_t);
ssize_t shunt_fabric_send(struct shunt_fabric *, const struct iovec *, size_t, void *descriptor, uint64_t, uint32_t slot);
ssize_t shunt_fabric_receive(struct shunt_fabric *, void *, size_t, void *descriptor, uint32_t slot);
ssize_t shunt_fabric_write(struct shunt_fabric *, const struct iovec *, void *descriptor, uint64_t to, uint64_t address,
                           uint64_t key, uint32_t slot);
ssize_t shunt_fabric_completions(struct shunt_fabric *, int queue, struct shunt_fabric_completion *, size_t);
int shunt_fabric_waits(struct shunt_fabric *, int queue);
int shunt_fabric_try_wait(struct shunt_fabric *);
size_t shunt_fabric_providers(char *, size_t);

#endif
