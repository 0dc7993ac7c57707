/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * weir: the multi-queue block layer for user space, for C. docs/library.md has an introduction.
 *
 * A disk is created, told its properties, connected, started, used by its queues, destroyed:
 *
 *     struct weir *disk;
 *     struct weir_completion done;
 *
 *     weir_create("file:/disk.img,size=1G", &disk);
 *     weir_connect(disk);
 *     weir_start(disk);
 *     struct weirq *queue = weir_get_queue(disk, 0);
 *     weirq_write(queue, 0, buf, 4096, NULL, 0);
 *     weirq_do_io(queue, &done, 1, 1, NULL);      // done.ret: 0, or a negative errno
 *     weir_destroy(&disk);
 *
 * Errors. Each call that can fail returns 0 or more, or a negative errno (NULL for a pointer), and
 * then weir_get_error_msg() has a sentence with the value and its bound. A null pointer where one
 * is needed is -EINVAL.
 *
 * Threads. Calls of a disk may be made by any thread, one at a time. A queue is used by one thread
 * at a time; each thread takes one of its own. A queue that is in a call of another thread answers
 * -EBUSY. weir has threads of its own, that serve all disks of the process.
 *
 * Memory. It is the caller's, of any alignment (see optimal-buf-alignment), and is not copied where
 * the device can reach it. It stays where it is, and is not changed by others, from weirq_read or
 * weirq_write until the completion. A completion with WEIR_COMPLETION_MEMORY_HELD was given up
 * before the device had answered (a timeout): the device may still use the memory, which is to stay
 * until property memory-held is 0, or until the process ends.
 *
 * Undefined: a pointer that is none of weir's, a disk or queue after weir_destroy, memory that does
 * not stay. The library stays loaded after dlclose, as threads of it may run.
 *
 * fork. Threads do not come along: a child neither uses nor destroys a disk of its parent, and
 * opens its own. exec is allowed; no descriptor of weir survives it.
 *
 * Signals. Waiting calls go on after a signal. No signal is blocked or handled by weir.
 *
 * Panics. A panic is a bug of weir. One in a call ends the call with -EIO where the library was
 * built so that panics unwind, and leaves a handle that can be destroyed only (-ENOTRECOVERABLE).
 * The release profile is built with panic=abort: the process ends, with a message on standard
 * error. A panic on one of weir's reactors ends the process in either.
 *
 * ABI. The library's name is libweir.so.WEIR_ABI. Within one WEIR_ABI functions, values and
 * properties are added; none is changed or taken away, and struct weir_completion has places kept
 * free. Before 1.0 a minor version may have a new WEIR_ABI.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION "0.1.0"
#define WEIR_ABI 0

/* A disk, and a queue of one. */
struct weir;
struct weirq;

/* The version of the library at run time, as "0.1.0", and its WEIR_ABI. */
const char *weir_version(void);
int weir_abi(void);

/* Why the last call of this thread that failed did so; "" if none has. The text stays until another
 * call of this thread fails. */
const char *weir_get_error_msg(void);

/* Creates a disk, from a target as in docs/targets.md ("ram:64MiB", "file:/x.img,size=1G",
 * "nbd+unix:/sock?export", "striped:64KiB:file:a+file:b"), or from a driver's name alone ("file"),
 * whose property address is then set. Nothing is opened yet. */
int weir_create(const char *target, struct weir **disk);

/* Opens the file, or the connections. Properties of the device can be read from here on. Blocks. */
int weir_connect(struct weir *disk);

/* Makes the num-queues queues. */
int weir_start(struct weir *disk);

/* Ends a disk in any state, with its queues, and sets *disk to NULL: waits for what is under way,
 * whose completions are dropped, flushes, and closes. May take close-limit-ms three times. NULL in *disk
 * is nothing.
 *
 * The disk is gone after an error, too, but for -EBUSY (a call of another thread is in it).
 * -ETIMEDOUT: a device had not answered in time; where the message says so, and after any other
 * error, memory of I/O under way is the device's until the process ends. A completion descriptor is
 * to be taken out of epoll before, as such a device may keep it open. */
int weir_destroy(struct weir **disk);

/* Properties.
 *
 * str, set before weir_connect:
 *   address   the text behind the colon of a target: PATH of a file (any bytes), SIZE of ram, ...
 *             Set first; it takes back what was set of the device before.
 *   name      for messages
 * Any other name is an option of the target (docs/targets.md), with what stands behind its `=`:
 * weir_set_str(disk, "scheduler", "bfq"), weir_set_int(disk, "queues", 2).
 *
 * bool, set before weir_connect:
 *   read-only   read afterwards: whether the device may only be read
 *
 * int, set before weir_connect:
 *   close-limit-ms   how long weir_destroy waits, 1 or more; 4000
 *
 * int, set before weir_start:
 *   num-queues    queues, 1 to max-queues; 1
 *   num-entries   completions that a queue may owe, 1 to 1048576; 1024
 *
 * Read at any time:
 *   driver        str: the kind of target
 *   connected     bool
 *   started       bool
 *   max-queues    int
 *   memory-held   int: I/Os that were given up whose memory is still the device's
 *
 * Read once connected:
 *   capacity                uint64: bytes
 *   request-alignment       int: offsets and lengths are multiples of it, bytes
 *   optimal-io-alignment    int: bytes
 *   optimal-io-size         int: bytes; 0 if it is not known
 *   buf-alignment           int: 1, any memory will do
 *   optimal-buf-alignment   int: memory that is aligned so is not copied, bytes
 *   max-transfer            uint64: bytes of a read or write
 *   max-segments            int: pieces of a read or write
 *   max-discard-len         uint64: bytes
 *   max-write-zeroes-len    uint64: bytes
 *   discard-alignment       int: bytes; 0 if the device has no discard
 *   flush-needed            bool: written is not durable before a flush
 *   supports-fua-natively   bool: WEIR_REQ_FUA costs no flush of everything
 *   needs-mem-regions       bool: false
 *   hard-queues             int: queues of the device, that those of the program are spread over
 *   active-scheduler        str
 *   notices                 str: what is to be known of how it was opened, a line each
 *
 * Errors: -ENOENT no such property (-EINVAL when it is set: no such option), -ENOTTY another type, -EACCES only read or only set,
 * -ENOTCONN too early, -EBUSY too late, -EINVAL a value outside its bound. */
int weir_get_bool(struct weir *disk, const char *name, bool *value);
int weir_get_int(struct weir *disk, const char *name, int *value);
int weir_get_uint64(struct weir *disk, const char *name, uint64_t *value);
/* The text is the caller's, for free(). */
int weir_get_str(struct weir *disk, const char *name, char **value);
int weir_set_bool(struct weir *disk, const char *name, bool value);
int weir_set_int(struct weir *disk, const char *name, int value);
int weir_set_uint64(struct weir *disk, const char *name, uint64_t value);
int weir_set_str(struct weir *disk, const char *name, const char *value);

/* A queue of a started disk, by number from 0. It is there until weir_destroy. */
struct weirq *weir_get_queue(struct weir *disk, int index);

/* Flags of requests. */
#define WEIR_REQ_FUA (1u << 0)         /* durable when it ends; write, write_zeroes */
#define WEIR_REQ_NO_UNMAP (1u << 1)    /* keeps the range allocated; write_zeroes */
#define WEIR_REQ_NO_FALLBACK (1u << 2) /* -EOPNOTSUPP where zeros would be written; write_zeroes */

/* Requests, offsets and lengths in bytes. 0: accepted, and it ends with a completion that has
 * user_data; it is sent on by weirq_do_io. A place off a block or beyond the end is told by the
 * completion. A table of pieces may go when the call returns, their memory may not.
 *
 * Errors: -EAGAIN the queue owes num-entries completions, -EINVAL what no device takes, -EBUSY. */
int weirq_read(struct weirq *queue, uint64_t start, void *buf, size_t len, void *user_data,
               uint32_t flags);
int weirq_write(struct weirq *queue, uint64_t start, const void *buf, size_t len, void *user_data,
                uint32_t flags);
int weirq_readv(struct weirq *queue, uint64_t start, const struct iovec *pieces, int count,
                void *user_data, uint32_t flags);
int weirq_writev(struct weirq *queue, uint64_t start, const struct iovec *pieces, int count,
                 void *user_data, uint32_t flags);
int weirq_write_zeroes(struct weirq *queue, uint64_t start, uint64_t len, void *user_data,
                       uint32_t flags);
int weirq_discard(struct weirq *queue, uint64_t start, uint64_t len, void *user_data,
                  uint32_t flags);
/* What was written and has ended before is durable when this has ended. */
int weirq_flush(struct weirq *queue, void *user_data, uint32_t flags);

/* Flags of completions. */
#define WEIR_COMPLETION_MEMORY_HELD (1u << 0) /* its memory is still the device's */

struct weir_completion {
    void *user_data;
    const char *error_msg; /* NULL if ret is 0; there until the next weirq_do_io */
    int ret;               /* 0, or a negative errno */
    uint32_t flags;
    uint64_t reserved[2];
};

/* Sends on what was requested, waits for min_completions, hands over at most max_completions, and
 * says how many. Fewer than min_completions are handed over when no more are under way, or when
 * timeout is over; -ETIME if that were none. No timeout: NULL. (0, 0) only sends on. */
int weirq_do_io(struct weirq *queue, struct weir_completion *completions, int min_completions,
                int max_completions, const struct timespec *timeout);

/* A descriptor for poll and epoll, of the queue and not to be closed: readable when weirq_do_io
 * would find completions, while it is enabled, which it is not at first. It may be readable for
 * nothing now and then. It is an eventfd, non-blocking; weirq_do_io resets it while it is enabled. */
int weirq_get_completion_fd(struct weirq *queue);
int weirq_set_completion_fd_enabled(struct weirq *queue, bool enable);

#ifdef __cplusplus
}
#endif

#endif
