/* Find the queue of each record, and build the units that a queue should have. */
#include "bytes.h"

/* A hash table of queues with linear probing. The topic of queue q is at topic_at[q] in `topics`. `slots` contains
 * queue numbers, or -1 if free; the number of slots is a power of two and exceeds the number of queues. */
struct queues {
    const uint8_t *topics;
    const int64_t *topic_at, *topic_length, *id;
    int64_t mask;
    int32_t *slots;
};

/* Return the slot of a queue, or the free slot where it belongs. */
static int64_t slot_of(const struct queues *queues, const uint8_t *topic, int64_t length, int64_t id) {
    int64_t slot = (int64_t)(hash_of(topic, length, id) & (uint64_t)queues->mask);
    for (;; slot = (slot + 1) & queues->mask) {
        int32_t q = queues->slots[slot];
        if (q < 0 || (queues->topic_length[q] == length && queues->id[q] == id &&
                      same(queues->topics + queues->topic_at[q], topic, length)))
            return slot;
    }
}

/* Insert queues [first, stop) into the slots. */
void rmqstore_place_queues(const uint8_t *topics, const int64_t *topic_at, const int64_t *topic_length,
                           const int64_t *id, int64_t first, int64_t stop, int64_t mask, int32_t *slots) {
    struct queues queues = {topics, topic_at, topic_length, id, mask, slots};
    for (int64_t q = first; q < stop; q++)
        slots[slot_of(&queues, topics + topic_at[q], topic_length[q], id[q])] = (int32_t)q;
}

/* Store the queue number of every record in `out`, -1 for an unknown queue; returns the number of unknown ones. */
int64_t rmqstore_find_queues(const uint8_t *buf, int64_t have, int64_t n, const int64_t *at, const int64_t *length,
                             const int64_t *queue_id, const uint8_t *topics, const int64_t *topic_at,
                             const int64_t *topic_length, const int64_t *id, int64_t mask, int32_t *slots,
                             int64_t *out) {
    struct queues queues = {topics, topic_at, topic_length, id, mask, slots};
    int64_t unknown = 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = -1;
        if (length[i] >= 0 && inside(at[i], length[i], have))
            out[i] = slots[slot_of(&queues, buf + at[i], length[i], queue_id[i])];
        unknown += out[i] < 0;
    }
    return unknown;
}

/* Group rows by queue, in their original order within each queue: queue q has rows [starts[q], starts[q + 1]). Fills
 * `units`, unless it is null, with consume queue units of 20 bytes (consumequeue.UNIT). `next` is scratch space for one
 * number per queue. Returns 0 if a queue number is out of range. */
int64_t rmqstore_lay_out(int64_t n, const int64_t *number, const int64_t *index, const int64_t *offset,
                         const int64_t *size, const int64_t *tags, int64_t queues, int64_t *next, int64_t *starts,
                         int64_t *out_index, int64_t *out_offset, uint8_t *units) {
    memset(next, 0, (size_t)queues * sizeof *next);
    for (int64_t i = 0; i < n; i++) {
        if (number[i] < 0 || number[i] >= queues) return 0;
        next[number[i]]++;
    }
    int64_t sum = 0;
    for (int64_t q = 0; q < queues; q++) {
        starts[q] = sum;
        sum += next[q];
        next[q] = starts[q];
    }
    starts[queues] = sum;
    for (int64_t i = 0; i < n; i++) {
        int64_t to = next[number[i]]++;
        out_index[to] = index[i];
        out_offset[to] = offset[i];
        if (units) {
            put64(units + 20 * to, offset[i]);
            put32(units + 20 * to + 8, size[i]);
            put64(units + 20 * to + 12, tags[i]);
        }
    }
    return 1;
}
