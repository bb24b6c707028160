"""Read broker.conf: the settings for paths, file sizes and recovery, and keys that brokers silently ignore.

The file is in the format of Java's Properties; the defaults are those of RocketMQ 5.4.0. A key is ignored if it is not
in the list of all keys that brokers read.

Source: MessageStoreConfig, BrokerConfig (RocketMQ 4.3 to 5.4.0); for the list, the setters of MessageStoreConfig,
BrokerConfig, BrokerIdentity, NettyServerConfig, NettyClientConfig, ControllerConfig and AuthConfig in RocketMQ 4.3.0
(MessageStoreConfig only), 4.9.7, 5.1.4, 5.4.0 and 5.5.1: MixAll#properties2Object calls a setter for each key and
ignores all others.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rmqstore.errors import BadBrokerConfig, NotReadable, about, reason
from rmqstore.files.files import LOCAL
from rmqstore.formats.javatext import parse_java_properties
from rmqstore.texts import Text

Number = int  # BrokerConfig has methods named int and bool
Truth = bool

COMMITLOG_FILE_SIZE = 1 << 30
CONSUME_QUEUE_FILE_SIZE = 6_000_000
EXT_FILE_SIZE = 50_331_648
BATCH_FILE_SIZE = 13_800_000
TIMER_LOG_FILE_SIZE = 104_857_600
DLEDGER_INDEX_FILE_SIZE = 167_772_160

DEFAULTS: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(COMMITLOG_FILE_SIZE),
    "mappedFileSizeConsumeQueue": str(CONSUME_QUEUE_FILE_SIZE),
    "mappedFileSizeConsumeQueueExt": str(EXT_FILE_SIZE),
    "mapperFileSizeBatchConsumeQueue": str(BATCH_FILE_SIZE),
    "mappedFileSizeTimerLog": str(TIMER_LOG_FILE_SIZE),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "maxMessageSize": "4194304",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "flushDiskType": "ASYNC_FLUSH",
    "brokerRole": "ASYNC_MASTER",
    "storeType": "default",
    "fileReservedTime": "72",
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": "75",
    "cleanFileForciblyEnable": "true",
    "checkCRCOnRecover": "true",
    "duplicationEnable": "false",
    "enabledAppendPropCRC": "false",
    "forceVerifyPropCRC": "false",
    "messageIndexEnable": "true",
    "messageIndexSafe": "false",
    "commitLogRecoverMaxNum": "10",
    "recheckReputOffsetFromCq": "false",
    "enableConsumeQueueExt": "false",
    "enableDLegerCommitLog": "false",
    "enableLmq": "false",
    "enableMultiDispatch": "false",
    "enableControllerMode": "false",
    "enableCompaction": "true",
    "timerWheelEnable": "true",
    "timerPrecisionMs": "1000",
    "indexRocksDBEnable": "false",
    "transRocksDBEnable": "false",
    "transWriteOriginTransHalfEnable": "true",
    "timerRocksDBEnable": "false",
    "rocksdbCQDoubleWriteEnable": "false",
    "combineCQMaxExtraSearchCommitLogFiles": "3",
    "combineCQUseRocksdbForLmq": "false",
    "rocksdbCQSelectiveDoubleWriteEnable": "false",
    "useSeparateStorePathForRocksdbCQ": "false",
    "iteratorWhenUseRocksdbConsumeQueue": "true",
    "checkCommitLogOffsetOnRecover": "false",
    "enableAcceleratedRecovery": "false",
}

_RENAMED_IN = (4, 5, 2)
"""First version that reads the new spelling instead of the old one (javap of rocketmq-store 4.3.0 to 5.4.0)."""
_OLD_SPELLING = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
_TEXT = frozenset({"deleteWhen"})
"""Settings that may be lists although their defaults look like numbers."""

_MAX_FILE = 1 << 20


class BrokerConfig:
    """The settings of a broker: those in `given`, from a file or the caller, and defaults for all others.

    `named_role`: the broker's role if the caller knows it; "" takes it from the settings.
    """

    def __init__(self, given: Mapping[str, str] | None = None, source: str = "", named_role: str = "") -> None:
        self.given = dict(given or {})
        self.source = source
        self.named_role = named_role

    @classmethod
    def read(cls, path: Path, version: str = "") -> BrokerConfig:
        """Read a broker.conf as a broker of `version` does (default: the newest).

        Brokers up to 4.5.1 read `mapedFileSize…` and ignore `mappedFileSize…`; later ones do the opposite.
        Errors: NotReadable; BadBrokerConfig for a binary or oversized file, and for an invalid value.
        """
        try:
            raw = LOCAL.read_small(path, _MAX_FILE)
        except OSError as e:
            if e.errno == errno.EFBIG:
                raise BadBrokerConfig(
                    Text("{path} is not a broker.conf: {strerror}", path=path, strerror=reason(e))
                ) from None
            raise NotReadable(about(path, e)) from None
        if b"\0" in raw:
            raise BadBrokerConfig(Text("{path} is not a broker.conf", path=path))
        text = raw.decode("utf-8", "replace")
        given = parse_java_properties(text)[0]
        if version and tuple(int(part) for part in version.split(".")) < _RENAMED_IN:
            given = {k: v for k, v in given.items() if k not in _OLD_SPELLING.values()}
            given = {_OLD_SPELLING.get(k, k): v for k, v in given.items()}
        config = cls(given, str(path))
        for key, default in DEFAULTS.items():
            if key in config.given and default.isdigit() and key not in _TEXT:
                config._check_int(key)
        return config

    def _check_int(self, key: str) -> None:
        """Check the range of an integer setting.

        Errors: BadBrokerConfig for a number outside Java's int, and for a file size that is not positive.
        """
        value = self.int(key)
        if not -(1 << 31) <= value < 1 << 31:
            raise BadBrokerConfig(
                Text(
                    "{source}: {key}={value} is out of range for a 32-bit int", source=self.source, key=key, value=value
                )
            )
        if "FileSize" in key and value <= 0:
            raise BadBrokerConfig(
                Text("{source}: {key}={value} is not a file size", source=self.source, key=key, value=value)
            )

    def text(self, key: str) -> str:
        """Return a setting as text; empty if it is not given and has no default."""
        value = self.given.get(key)
        return DEFAULTS.get(key, "") if value is None else value

    def int(self, key: str) -> Number:
        """Return a setting as a number. Errors: BadBrokerConfig if its value is not a number."""
        value = self.text(key)
        try:
            return int(value)
        except ValueError:
            raise BadBrokerConfig(
                Text("{source}: {key}={value} is not a number", source=self.source or "settings", key=key, value=value)
            ) from None

    def bool(self, key: str) -> Truth:
        """Return a setting as Boolean.parseBoolean reads it."""
        return self.text(key).strip().lower() == "true"

    def paths(self, key: str) -> list[Path]:
        """Return the paths of a setting, split at `,` (MixAll#MULTI_PATH_SPLITTER); empty if it is not given."""
        value = self.given.get(key, "")
        return [Path(p.strip()) for p in value.split(",") if p.strip()]

    @property
    def directories(self) -> list[Path]:
        """The directories for logs that the settings name and that exist."""
        named = [*self.paths("storePathCommitLog"), *self.paths("storePathDLedgerCommitLog")]
        return [path for path in named if path.is_dir()]

    def changed(self, settings: Mapping[str, str]) -> BrokerConfig:
        """Return the same configuration with `settings` added or replaced."""
        return BrokerConfig({**self.given, **settings}, self.source, self.named_role)

    def in_role(self, role: str) -> BrokerConfig:
        """Return the same configuration of a broker in this role; "" leaves it to the settings."""
        return BrokerConfig(self.given, self.source, role)

    def file_sizes(self) -> dict[str, str]:
        """Return the given settings that are sizes of store files."""
        return {k: v for k, v in self.given.items() if k.startswith(("mappedFileSize", "mapperFileSize"))}

    def given_int(self, key: str) -> Number | None:
        """Return a setting as a number, without default: None if it is not given."""
        return self.int(key) if key in self.given else None

    @property
    def role(self) -> str:
        """The broker's role: "master", "slave", "controller", "dledger-group", "single" or "unknown"."""
        if self.named_role or not self.given:
            return self.named_role or "unknown"
        if self.bool("enableDLegerCommitLog"):
            peers = [p for p in self.text("dLegerPeers").split(";") if p.strip()]
            return "dledger-group" if len(peers) > 1 else "single"
        if self.bool("enableControllerMode"):
            return "controller"
        if self.text("brokerRole") == "SLAVE" or self.given.get("brokerId", "0").strip() not in ("", "0"):
            return "slave"
        if "brokerRole" in self.given or "brokerId" in self.given:
            return "master"
        return "unknown"


_KEYS_TEXT = """
accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio accountStatsEnable accountStatsPrintZeroValues
ackMessageThreadPoolNums ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond
aclEnable adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet
allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync appendTopicForTimerDeleteKey asyncLearner
asyncSendEnable authConfigPath authenticationEnabled authenticationMetadataProvider authenticationProvider
authenticationStrategy authenticationWhitelist authorizationEnabled authorizationMetadataProvider
authorizationProvider authorizationStrategy authorizationWhitelist autoCreateSubscriptionGroup autoCreateTopicEnable
autoDeleteUnusedStats autoMessageVersionOnTopicLen batchDeleteSubscriptionGroupMaxRate batchDeleteTopicMaxRate
batchDispatchRequestThreadPoolNums bindAddress bitMapLengthConsumeQueueExt
bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
brokerClusterName brokerConfigPath brokerElectionPriority brokerFastFailureEnable brokerHeartbeatInterval brokerIP1
brokerIP2 brokerId brokerName brokerNotActiveTimeoutMillis brokerPermission brokerRole brokerTopicEnable
cgColdReadThreshold channelExpiredTimeout channelNotActiveInterval checkCRCOnRecover checkCommitLogOffsetOnRecover
checkSyncStateSetPeriod cleanFileForciblyEnable cleanOfflineBrokerInterval cleanResourceInterval
cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue
clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientManageThreadPoolNums
clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads clusterName clusterTopicEnable coldCtrStrategyEnable
coldDataFlowControlEnable coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf
combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq
commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount commercialTransCount
commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
commitLogRecoverMaxNum commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
compactionMappedFileSize compactionScheduleInternal compactionThreadNum compatibleWithOldNameSrv compressedRegister
configBlackList configManagerVersion configName configStorePath connectTimeoutMillis consumerFallbehindThreshold
consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity consumerOffsetUpdateVersionStep controllerAddr
controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId controllerHeartBeatTimeoutMills
controllerRequestThreadPoolQueueCapacity controllerStorePath controllerThreadPoolNums controllerType
correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval correctMinOffsetMadviseEnable dLegerGroup
dLegerPeers dLegerSelfId dataReadAheadEnable debugLockEnable defaultMessageRequestMode defaultPopShareQueueNum
defaultQueryMaxNum defaultTopicQueueNums delayOffsetUpdateVersionStep deleteCommitLogFilesInterval
deleteConsumeQueueFilesInterval deleteFileBatchMax deleteWhen destroyMapedFileIntervalForcibly disableCallbackExecutor
disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup disappearTimeAfterStart diskFallRecorded
diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads
dispatchFromSenderThread duplicationEnable electMasterMaxRetryCount enableAcceleratedRecovery enableAsyncReput
enableAutoInSyncReplicas enableBatchPush enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently
enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction enableConnectionMetrics enableConsumeQueueExt
enableControllerMode enableCreateSysGroup enableDLegerCommitLog enableDetailStat enableElectUncleanMaster
enableFastChannelEventProcess enableLagAndDlqMetrics enableLitePopLog enableLmq enableLmqQuota enableLmqStats
enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics enableMixedMessageType enableMultiDispatch
enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck
enablePopBufferMerge enablePopLog enablePopMessageThreshold enablePopMetrics enablePropertyFilter
enableReconnectForGoAway enableRegisterProducer enableRemoteEscape enableRemotingMetrics enableRequestMetrics
enableRetryTopicV2 enableRocksDBLog enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats
enableShutdownGracefully enableSingleTopicRegister enableSkipLongAwaitingAck enableSlaveActingMaster
enableSplitMetadata enableSplitRegistration enableStatsMetrics enableTransactionMetrics enabledAppendPropCRC
endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation expectConsumerNumUseFilter
fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup
fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval fileReservedTime filterDataCleanTimeSpan filterServerNums
filterSupportRetry flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval
flushConsumerOffsetInterval flushDelayOffsetInterval flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue
flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC forwardTimeout globalColdReadThreshold
haFlowControlEnable haHousekeepingInterval haListenPort haMasterAddress haMaxGapNotInSync haMaxTimeSlaveNotCatchup
haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize heartbeatThreadPoolNums
heartbeatThreadPoolQueueCapacity highSpeedMode inBrokerContainer inSyncReplicas indexFileReadEnable
indexFileWriteEnable indexRocksDBEnable initAuthenticationUser initPopOffsetByCheckMsgInMem
innerClientAuthenticationCredentials isolateLogEnable iteratorWhenUseRocksdbConsumeQueue jraftConfig listenPort
liteEventCapacityCacheTtlMs liteEventCheckInterval liteEventFullDispatchDelayTime
liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable liteLagLatencyCollectEnable
liteLagLatencyMetricsEnable liteLagLatencyTopK litePullMessageEnable litePullMessageThreadPoolNums
litePullThreadPoolQueueCapacity liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills liteTtlCheckInterval
loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
lockInStrictMode logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
logicalDiskSpaceCleanForciblyThreshold longPollingEnable mappedFileSize mappedFileSizeCommitLog
mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog mappedFileSwapEnable
mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxCheckMessageReuseBufferSize
maxChecksumRange maxClientEventCount maxConsumeQueueScan maxDelayTime maxErrorRateOfBloomFilter maxFilterMessageSize
maxHaTransferByteInSecond maxHashSlotNum maxIndexNum maxLiteSubscriptionCount maxLmqConsumeQueueNum
maxMessageFilterNumForNotification maxMessageSize maxMsgsNumBatch maxOffsetMapSize maxPopPollingSize
maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays maxSlaveResendLength
maxStatsIdleTimeInMinutes maxTopicLength maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushInterval memTableFlushIntervalMs
messageDelayLevel messageIndexEnable messageIndexSafe messageStorePlugIn metricGrpcExporterIntervalInMills
metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExportBatchMaxConcurrent
metricsExportBatchMaxDataPoints metricsExportBatchSplitEnabled metricsExportOtelMemoryMode metricsExporterType
metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
metricsPromExporterHost metricsPromExporterPort migrateAuthFromV1Enabled minInSyncReplicas minLiteTTl
msgTraceTopicName namesrvAddr notifyBrokerRoleChanged notifyConsumerIdsChangedEnable offsetCheckInSlave
osPageCacheBusyTimeOutMills persistConsumerOffsetIncrementally popCkMaxBufferSize popCkOffsetMaxQueueSize
popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability popFromRetryProbabilityForPriority
popInflightMessageThreshold popLongPollingForceNotifyInterval popOrderLockTimerTickMs popOrderLockTimerTicksPerWheel
popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize popResponseReturnActualRetryTopic popReviveConcurrency
popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent popRocksdbBlockCacheSize
popRocksdbWriteBufferSize preferredLeaderId printChannelGroups printChannelGroupsMinNum priorityOrderAsc
processReadEvent processReplyMessageThreadPoolNums pullBatchMaxMessageCount pullMessageThreadPoolNums
pullThreadPoolQueueCapacity putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout
putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
readOnlyCommitLogStorePaths readUnCommitted realTimeNotifyConsumerChange realTimePersistRocksDBConfig
recallMessageEnable recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval
regionId registerBrokerTimeoutMills registerNameServerPeriod rejectPullConsumerEnable rejectTransactionMessage
replicasPerDiskPartition replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs
reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rocketmqHome rocksdbCQDoubleWriteEnable
rocksdbCQSelectiveDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency rocksdbMaxSizeAmplificationPercent
rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps scanAvailableNameSrv scanInactiveMasterInterval
scanNotActiveBrokerInterval scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
searchBcqByCacheEnable sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity
serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable
serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads sharedByteBufferNum
shortPollingTimeMills shutdownWaitTimeSeconds skipPreOnline skipWhenCKRePutReachMaxTimes slaveReadEnable slaveTimeout
socksProxyConfig spinLockCollisionRetreatOptimalDegree splitMetadataSize splitRegistrationSize
startAcceptSendRequestTimeStamp statRocksDBCQIntervalSec statefulAuthenticationCacheExpiredSecond
statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
storePathBrokerIdentity storePathCommitLog storePathDLedgerCommitLog storePathEpochFile storePathRootDir
storeReplyMessageEnable storeType subscriptionExpiredTimeout syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod
syncControllerMetadataPeriod syncFlushTimeout syncFromLastFile syncMasterFlushOffsetWhenStartup
timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics timerEnableRetryUntilSuccess
timerFlushIntervalMs timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold
timerPrecisionMs timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimeWheelEnable
timerRecallToTimelineEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize timerReputServiceQueueCapacity
timerRocksDBEnable timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps timerRollWindowSlot
timerSkipUnknownError timerStopEnqueue timerWheelEnable timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
topicQueueLockNum totalReplicas traceOn traceTopicEnable transRocksDBEnable transWriteOriginTransHalfEnable
transactionCheckInterval transactionCheckMax transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
transactionCheckRocksdbQueueCapacity transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
transactionTimeOut transferMsgByHeap transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage
updateNameServerAddrPeriod useABSLock useEpollNativeSelector useMessageFilterForNotification usePIDColdCtrStrategy
useReentrantLockWhenPutMessage useSeparateRetryQueue useSeparateStorePathForRocksdbCQ useServerSideResetOffset
useSingleRocksDBForAllConfigs useStaticSubscription useTLS userCacheExpiredSecond userCacheMaxNum
userCacheRefreshSecond validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable
writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
"""
KNOWN = frozenset(_KEYS_TEXT.split())


def unknown_keys(given: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each key that no broker reads, with the most similar key that brokers read (empty if none is similar)."""
    import difflib

    lower = {key.lower(): key for key in KNOWN}
    for key in given:
        if key not in KNOWN:
            near = difflib.get_close_matches(key.lower(), lower, 1, 0.75)
            yield key, lower[near[0]] if near else ""
