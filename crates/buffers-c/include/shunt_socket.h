/* What a program may ask about its own socket under shunt.
 *
 *   int carrier; socklen_t length = sizeof carrier;
 *   if (getsockopt(fd, SOL_SHUNT, SHUNT_SO_CARRIER, &carrier, &length) == -1)
 *       ...  EOPNOTSUPP or ENOPROTOOPT: the program does not run under shunt
 *
 * Nothing can be set. Needs no library: shunt answers where it is preloaded. */
#ifndef SHUNT_SOCKET_H
#define SHUNT_SOCKET_H

#define SOL_SHUNT 0x53484e54

/* An int: what carries the bytes. */
#define SHUNT_SO_CARRIER 1
#define SHUNT_CARRIER_KERNEL 0
/* The peer is on this host, and a port over the connection goes by reference (shunt_port_over). */
#define SHUNT_CARRIER_SHARED_MEMORY 1
#define SHUNT_CARRIER_OTHER_HOST 2

/* A string with its NUL, of at most 64 bytes: the reason for that, as `shunt why` names it; "accelerated" or one of docs/reference/REASONS.md. */
#define SHUNT_SO_REASON 2

#endif
