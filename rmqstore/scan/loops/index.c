/* Build the units of an index file. */
#include "bytes.h"

/* Put n keys into the slot table, in order: key i becomes unit `first` + i, and its `hash` selects the slot. Fills
 * `units` with index units of 20 bytes (index.UNIT) and sets `changed` for every slot page that changes. Returns the
 * number of slots that were empty; -1 for a negative hash, which is in no slot. */
int64_t rmqstore_put_keys(int64_t n, const int64_t *hash, const int64_t *offset, const int64_t *seconds, int64_t first,
                          int64_t slots, int64_t page_slots, int32_t *table, uint8_t *changed, uint8_t *units) {
    int64_t new_slots = 0;
    for (int64_t i = 0; i < n; i++)
        if (hash[i] < 0) return -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = hash[i] % slots;
        put32(units + 20 * i, hash[i]);
        put64(units + 20 * i + 4, offset[i]);
        put32(units + 20 * i + 12, seconds[i]);
        put32(units + 20 * i + 16, table[slot]);
        new_slots += table[slot] == 0;
        table[slot] = (int32_t)(first + i);
        changed[slot / page_slots] = 1;
    }
    return new_slots;
}
