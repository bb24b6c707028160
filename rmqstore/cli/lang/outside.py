"""Words that people see and no source has as a text: names of facts, errors of the system, parts of other texts.

Babel extracts them from here. The output makes texts of them as it prints a finding or an error.
"""

from __future__ import annotations

from rmqstore.texts import Text

FACTS = """
absent acknowledgements actual address at_least bak base_offset because before behind body born_port born_timestamp
broker broker_user bytes cannot_read cause check_points claimed commitlog_files_end commitlog_offset committed_index
compressed_file computed_CRC condition configured count curr_term damaged delivered_again directories directory
dledger_begins effect end end_of_log endless entries entry_size epoch error expected expected_index family fault
faults field file file_size files first_due_time first_offset first_timestamp first_unit from goes_back got group
has_its_own in in_future in_timer_queue in_topics_json index journal kept key keys last_due_time last_index
last_offset last_read_time last_store_timestamp last_term last_timer_log_flush_pos last_timer_queue_offset
last_timestamp leads left legacy_end length level levels line log_end logical_queue loops magic
master_timer_queue_offset max message_queue_offset messages messages_looked_at messages_with_units min min_offset
missing mode next offset option other other_records owner path perm phy_offset physical_offset pos pre_blanks prev_pos
problem queue_id queue_offset queue_type queues read_queues readable_from reason recorded_CRC records records_from
right_name right_queue rows says set setting size spares stands_at starts_at state store_host
store_host_of_other_files store_port store_timestamp syntax sys_flag tags_code target term text tier_end times to
topic topics unique_id unique_key unit unit_queue_id unit_queue_offset unit_topic units units_that_fit until value
versions what wrong wrote youngest zero_bytes
"""
"""Keys of `Finding.facts`: Babel extracts `absent {value}`, `at least {value}` and so on."""
SYSTEM = (
    Text("No such file or directory"),
    Text("Permission denied"),
    Text("No space left on device"),
    Text("Read-only file system"),
    Text("Is a directory"),
    Text("Not a directory"),
    Text("Input/output error"),
    Text("Operation not permitted"),
    Text("File exists"),
    Text("Disk quota exceeded"),
    Text("Too many levels of symbolic links"),
    Text("File name too long"),
    Text("Structure needs cleaning"),
    Text("Cannot allocate memory"),
    Text("Too many open files"),
    Text("Stale file handle"),
    Text("Bad address"),
    Text("Broken pipe"),
)
"""What strerror says about files."""
OUTCOMES = (
    Text("would not start ({how}): {reason}"),
    Text("would not start: {reason}"),
    Text("would start and cut nothing"),
    Text("would start and drop {cut} from {queues}{caveat}"),
    Text("would start and lose nothing"),
    Text("would start and lose {lost}{caveat}"),
    Text("would start and {acts}{caveat}"),
    Text("would start{caveat}"),
    Text("{beside}, and deliver none of {messages}"),
    Text("{beside}, and know none of its topics, consumer groups and offsets"),
)
"""What RocketMQ would do: the sentences of `StartForecast.sentence` without the version."""
