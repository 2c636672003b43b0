/* What Buffers.java asks of shunt_buffers.h. */
#include "shunt_buffers.h"
#include <jni.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static shunt_port *here, *there;
static shunt_pool *pool;
static shunt_region *region;
static size_t size;

static void need(int fine, const char *what, int result)
{
    if (fine)
        return;
    fprintf(stderr, "%s: %s\n", what, shunt_result_text(result));
    abort();
}

JNIEXPORT void JNICALL Java_Buffers_begin(JNIEnv *env, jclass class, jint bytes)
{
    (void)env, (void)class;
    int ends[2], error = 0;
    size = (size_t)bytes;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair", 0);
    here = shunt_port_connect(ends[0], &error);
    need(here != NULL, "connect", error);
    there = shunt_port_accept(ends[1], &error);
    need(there != NULL, "accept", error);
    pool = shunt_pool_create(64 << 10, 8 * size >> 16, SHUNT_PAGES_SMALL, SHUNT_FOR_ANYONE, &error);
    need(pool != NULL, "pool", error);
    error = shunt_port_offer(here, pool);
    need(error == SHUNT_OK, "offer", error);
}

JNIEXPORT jobject JNICALL Java_Buffers_region(JNIEnv *env, jclass class)
{
    (void)class;
    int error = 0;
    if (region != NULL)
        shunt_region_release(region);
    region = shunt_region_allocate(pool, size, &error);
    need(region != NULL, "region", error);
    return (*env)->NewDirectByteBuffer(env, shunt_region_data(region), (jlong)size);
}

JNIEXPORT jint JNICALL Java_Buffers_send(JNIEnv *env, jclass class)
{
    (void)env, (void)class;
    size_t bytes, references;
    int error = shunt_send(here, shunt_region_data(region), size, 1, NULL);
    need(error == SHUNT_OK, "send", error);
    shunt_port_lent(here, &bytes, &references);
    return (jint)references;
}

JNIEXPORT void JNICALL Java_Buffers_receive(JNIEnv *env, jclass class, jbyteArray target)
{
    (void)class;
    size_t length;
    void *room = malloc(size);
    int error = shunt_receive(there, room, size, &length);
    need(error == SHUNT_OK && length == size, "receive", error);
    (*env)->SetByteArrayRegion(env, target, 0, (jsize)size, room);
    free(room);
}
