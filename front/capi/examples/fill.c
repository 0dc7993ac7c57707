/* Fills the start of a disk with numbered blocks, 32 of them under way at a time, in an event loop;
 * then reads them back and compares.
 *
 *     cc -o fill fill.c $(pkg-config --cflags --libs weir)
 *     ./fill ram:64MiB
 *     ./fill file:/disk.img,size=64M
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

enum { BLOCK = 4096, BLOCKS = 1000, DEPTH = 32 };

static void check(int ret, const char *what) {
    if (ret < 0) {
        fprintf(stderr, "fill: %s: %s\n", what, weir_get_error_msg());
        exit(EXIT_FAILURE);
    }
}

/* Does something with each block, from a memory for each that is under way. */
static void each_block(struct weirq *queue, char *memory, int write) {
    struct pollfd event = {.fd = weirq_get_completion_fd(queue), .events = POLLIN};
    struct weir_completion done[DEPTH];
    int next = 0, ended = 0, place[DEPTH];

    for (int i = 0; i < DEPTH; i++)
        place[i] = -1;
    check(weirq_set_completion_fd_enabled(queue, true), "descriptor");
    while (ended < BLOCKS) {
        for (int i = 0; i < DEPTH && next < BLOCKS; i++) {
            char *buf = memory + i * BLOCK;
            if (place[i] >= 0)
                continue;
            place[i] = next++;
            if (write) {
                memset(buf, place[i] % 251, BLOCK);
                check(weirq_write(queue, (uint64_t)place[i] * BLOCK, buf, BLOCK, &place[i], 0),
                      "write");
            } else {
                check(weirq_read(queue, (uint64_t)place[i] * BLOCK, buf, BLOCK, &place[i], 0),
                      "read");
            }
        }
        /* Sends them on, and takes what is there without waiting. */
        int count = weirq_do_io(queue, done, 0, DEPTH, NULL);
        check(count, "do_io");
        for (int i = 0; i < count; i++) {
            int *at = done[i].user_data;
            if (done[i].ret < 0) {
                fprintf(stderr, "fill: %s\n", done[i].error_msg);
                exit(EXIT_FAILURE);
            }
            const char *buf = memory + (at - place) * BLOCK;
            if (!write && (buf[0] != (char)(*at % 251) || memcmp(buf, buf + 1, BLOCK - 1) != 0)) {
                fprintf(stderr, "fill: block %d has other bytes\n", *at);
                exit(EXIT_FAILURE);
            }
            *at = -1;
            ended++;
        }
        if (count == 0)
            poll(&event, 1, -1);
    }
}

int main(int argc, char **argv) {
    struct weir *disk;
    struct weir_completion done;
    uint64_t capacity;

    check(weir_create(argc > 1 ? argv[1] : "ram:64MiB", &disk), "create");
    check(weir_connect(disk), "connect");
    check(weir_start(disk), "start");
    check(weir_get_uint64(disk, "capacity", &capacity), "capacity");
    struct weirq *queue = weir_get_queue(disk, 0);
    char *memory = aligned_alloc(BLOCK, (size_t)DEPTH * BLOCK);
    if (queue == NULL || memory == NULL)
        return EXIT_FAILURE;

    each_block(queue, memory, 1);
    check(weirq_flush(queue, NULL, 0), "flush");
    check(weirq_do_io(queue, &done, 1, 1, NULL), "do_io");
    if (done.ret < 0) {
        fprintf(stderr, "fill: %s\n", done.error_msg);
        return EXIT_FAILURE;
    }
    each_block(queue, memory, 0);
    check(weir_destroy(&disk), "destroy");
    free(memory);
    printf("%d blocks of %" PRIu64 " bytes written and read, weir %s\n", BLOCKS, capacity,
           weir_version());
    return EXIT_SUCCESS;
}
