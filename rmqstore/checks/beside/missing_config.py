"""Configuration that is gone, or that a broker never wrote: topics and consumer offsets.

`delay_offsets.py` does the same for delayOffset.json. A broker writes all files of config/ every few seconds, also
empty ones (BrokerController#initializeScheduledTasks). A store that only rmqstore made has topics.json at most. So a
missing file was removed if a broker has run on the store: it has left other files, or config/ is gone and the log has
messages of its own topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rmqstore.checks.beside.config import JSON_FILES, ConfigFacts
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, QueueState
from rmqstore.files.config import TABLES, TOPICS, V2
from rmqstore.files.store import Store
from rmqstore.formats.properties import is_lmq, is_system_topic

_RETRY, _DEAD = "%RETRY%", "%DLQ%"
_OF_BROKERS = ("compaction", "rocksdbstore", "kvStore", "timerwheel", "timerlog", "brokerIdentity")
_CONFIG_OF_BROKERS = set(JSON_FILES) - {"topics.json"}
_WITH_TOPICS = {"subscriptionGroup.json", "topicQueueMapping.json", "delayOffset.json"}
"""Files of a broker that has topics; a slave that has never asked its master for them has none of these."""
_OFFSETS = {"consumerOffset.json", "lmqConsumerOffset.json"}  # with enableLmq, a broker writes only the second
_DATABASES = frozenset({"topics", "consumerOffsets", "metadata", "rdb"})
_NAMED = 5


def check_missing_config(
    store: Store,
    config: ConfigFacts,
    states: Mapping[str, QueueState],
    known_topics: Collection[str] | None,
    findings: Findings,
) -> None:
    """Report missing topics and consumer offsets of a store with messages on which a broker has run.

    `states`: all queues, by name ("TOPIC/ID"). `known_topics`: those of the configuration; None: unknown.
    """
    queues = list(states)
    names = _names(store)
    if config.databases.get(TOPICS) == V2:
        _check_stored_topics(config, _own(_topics(queues)), findings)
    elif known_topics is not None and store.config.role != "slave":
        _check_known_topics(states, known_topics, findings)
    if _DATABASES & set(store.rocksdb_config) or not broker_has_run(store, queues):
        return
    topics = _topics(queues)
    with_topics = not names or bool(names & _WITH_TOPICS)
    if with_topics and "topics.json" not in names and codes.CFG_NO_TOPICS not in findings.counts:
        own = _own(topics)
        if own:
            findings.add(Finding(codes.CFG_LOST_TOPICS, "config", "topics.json", facts=_listed("topics", own)))
    if not names & _OFFSETS:
        known = [*topics, *(config.queue_types or ())]
        groups = sorted({topic.removeprefix(_RETRY) for topic in known if topic.startswith(_RETRY)})
        if groups:
            facts = _listed("groups", groups)
            findings.add(Finding(codes.CFG_NO_OFFSETS, "config", "consumerOffset.json", facts=facts))


def _check_stored_topics(config: ConfigFacts, own: Sequence[str], findings: Findings) -> None:
    """Report topics with queues that version 2 of the configuration did not store.

    Source: TopicConfigManager#createTopicInSendMessageMethod, which calls #putTopicConfig, and TopicConfigManagerV2,
    which stores topics only in #updateTopicConfig (RocketMQ 5.5.1; after a restart, whole brokers do not know them)
    """
    table = config.tables[TOPICS].get(TABLES[TOPICS])
    stored = table if isinstance(table, dict) else {}
    if lacking := [topic for topic in own if topic not in stored]:
        findings.add(Finding(codes.CFG_UNSTORED_TOPICS, "config", V2, facts=_listed("topics", lacking)))


def _check_known_topics(states: Mapping[str, QueueState], known: Collection[str], findings: Findings) -> None:
    """Report topics with messages in their queues that a broker does not know, and so does not serve.

    A slave may have them: it takes topics.json from its master, and keeps the queues of a topic that was deleted there.
    """
    messages: dict[str, int] = {}
    for label, state in states.items():
        topic = label.rpartition("/")[0]
        if topic not in known and state.max > state.min:
            messages[topic] = messages.get(topic, 0) + state.max - state.min
    if unknown := _own(sorted(messages)):
        facts = _listed("topics", unknown) | {"messages": sum(messages[topic] for topic in unknown)}
        findings.add(Finding(codes.CFG_UNKNOWN_TOPICS, "config", "topics.json", facts=facts))


def broker_has_run(store: Store, queues: Iterable[str]) -> bool:
    """Return whether a broker has left files. Without config/, topics that only brokers create show it, too.

    `queues`: the names of all queues ("TOPIC/ID").
    """
    names = _names(store)
    if any(name in store.top for name in _OF_BROKERS) or names & _CONFIG_OF_BROKERS:
        return True
    return not names and any(is_system_topic(topic) or topic.startswith(_RETRY) for topic in _topics(queues))


def _names(store: Store) -> set[str]:
    """Return the names of the files in config/, a .bak under the name of its file."""
    return {e.path.name.removesuffix(".bak") for e in store.files.list(store.root / "config")}


def _topics(queues: Iterable[str]) -> list[str]:
    return sorted({name.rpartition("/")[0] for name in queues})


def _own(topics: Iterable[str]) -> list[str]:
    """Return the topics that users create: not those of the broker, of retries, of dead letters, or light queues."""
    return [t for t in topics if not (is_system_topic(t) or is_lmq(t) or t.startswith((_RETRY, _DEAD)))]


def _listed(what: str, names: list[str]) -> dict[str, Fact]:
    listed = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    return {"count": len(names), what: listed}
