import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens one store with the real DefaultMessageStore, reads every queue offset of every queue, and prints one JSON object
 * as the last line of stdout. It changes the store. The same source is for 4.9.x and 5.x: where their APIs differ, it
 * uses reflection.
 *
 * <pre>Oracle STORE [start=true] [shutdown=true] [list=true] [brisk=true] [wait=SECONDS] [still=SECONDS] [badlist=N] [put=N]
 *        [keys=FILE] [pull=N] [clean=ROUNDS] [manual=true] [any MessageStoreConfig setting=value]…</pre>
 *
 * still: a start counts as one that never ends if re-dispatch makes no progress for this time. 35 s are more than the 30 s
 * for which ConsumeQueue#putMessagePositionInfoWrapper retries a queue that cannot be written.
 * put: appends N messages to topic Order before it reads. keys: runs the queries in a file (Keys.java). pull: reads every
 * queue again like a consumer, N messages per pull (Pulls.java). clean: runs the clean-up services before it reads
 * (CleanUp.java).
 *
 * Exit code: 0 loaded, 3 load() returned false, 4 exception; any other code is from a System.exit of RocketMQ.
 */
public final class Oracle {
    static {
        System.setProperty("tls.server.mode", "disabled"); // otherwise a DLedger node would generate an RSA key, which takes seconds
    }

    private final File root;
    private final Map<String, String> settings = new LinkedHashMap<>();
    private final List<String> unknownSettings = new ArrayList<>();
    private final boolean start;
    private final boolean shutdown;
    private final boolean list;
    private final boolean brisk;
    private final int wait;
    private final int still;
    private final int badList;
    private final int put;
    private final String light;
    private final String keys;
    private final int pull;
    private final int clean;
    private final boolean manual;

    private final MessageStoreConfig config = new MessageStoreConfig();
    private final ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
    private DefaultMessageStore store;
    private BrokerStatsManager statistics;
    private String phase = "construct";
    private String crash;

    private boolean load;
    private long minPhy = -1;
    private long maxPhy = -1;
    private long maxPhyAfterLoad = -1;
    private long behind = -1;
    private Boolean leader;
    private String shutdownState;
    private long offsets;
    private long readable;
    private final TreeMap<String, String> queues = new TreeMap<>();
    private String puts = "[]";
    private String byKey = "[]";
    private String rounds = "[]";

    Oracle(String[] arguments) {
        root = new File(arguments[0]).getAbsoluteFile();
        for (int i = 1; i < arguments.length; i++) {
            int equals = arguments[i].indexOf('=');
            settings.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
        start = Boolean.parseBoolean(take("start", "false"));
        shutdown = Boolean.parseBoolean(take("shutdown", "false"));
        list = Boolean.parseBoolean(take("list", "false"));
        brisk = Boolean.parseBoolean(take("brisk", "false"));
        wait = Integer.parseInt(take("wait", "120"));
        still = Integer.parseInt(take("still", "35"));
        badList = Integer.parseInt(take("badlist", "5"));
        put = Integer.parseInt(take("put", "0"));
        light = take("light", "");
        keys = take("keys", "");
        pull = Integer.parseInt(take("pull", "0"));
        clean = Integer.parseInt(take("clean", "0"));
        manual = Boolean.parseBoolean(take("manual", "false"));
    }

    public static void main(String[] arguments) {
        PrintStream out = System.out;
        System.setOut(System.err); // stdout is only for the result
        Oracle oracle = new Oracle(arguments);
        out.println(oracle.ask());
        out.flush();
        // halt, not exit: RocketMQ's threads and hooks must not touch the store any longer
        Runtime.getRuntime().halt(oracle.crash != null ? 4 : oracle.load ? 0 : 3);
    }

    /** Does what the arguments request, and returns the result as one line of JSON. */
    String ask() {
        try {
            run();
        } catch (Throwable e) {
            crash = phase + ": " + describe(e);
            e.printStackTrace();
        }
        return answer();
    }

    private String take(String key, String otherwise) {
        String value = settings.remove(key);
        return value == null ? otherwise : value;
    }

    private void run() throws Exception {
        configure();
        readTopics();
        construct();
        addTransactions();
        CleanUp cleanUp = clean > 0 ? new CleanUp(store, root) : null;
        phase = "load";
        load = store.load();
        maxPhyAfterLoad = store.getMaxPhyOffset();
        if (!load) {
            minPhy = store.getMinPhyOffset();
            maxPhy = maxPhyAfterLoad;
            return;
        }
        holdDelayedMessages();
        if (start) {
            phase = "start";
            start();
        } else {
            allowReads();
        }
        if (put > 0) {
            phase = "put";
            puts = Puts.append(store, put, light);
        }
        if (clean > 0) {
            phase = "clean";
            rounds = cleanUp.run(clean, manual);
        }
        phase = "read";
        minPhy = store.getMinPhyOffset();
        maxPhy = store.getMaxPhyOffset();
        for (Map.Entry<String, TreeSet<Integer>> topic : queueNames().entrySet()) {
            for (int queue : topic.getValue()) {
                readQueue(topic.getKey(), queue);
            }
        }
        if (!keys.isEmpty()) {
            phase = "keys";
            byKey = Keys.ask(store, new File(keys));
        }
        if (shutdown) {
            phase = "shutdown";
            shutDown();
        }
    }

    private void configure() throws Exception {
        config.setStorePathRootDir(root.getPath());
        config.setStorePathCommitLog(new File(root, "commitlog").getPath());
        config.setHaListenPort(0); // any free port
        config.setFileReservedTime(720000); // the files of fixtures are old, and the oracle must not expire them
        config.setCleanFileForciblyEnable(false);
        config.setFlushIntervalConsumeQueue(100);
        trySetting("enableCompaction", "false");
        if (Boolean.parseBoolean(settings.get("enableDLegerCommitLog"))) {
            settings.putIfAbsent("dLegerGroup", "g");
            settings.putIfAbsent("dLegerSelfId", "n0");
            settings.putIfAbsent("dLegerPeers", settings.get("dLegerSelfId") + "-127.0.0.1:0");
        }
        for (Map.Entry<String, String> setting : settings.entrySet()) {
            if (!trySetting(setting.getKey(), setting.getValue())) {
                unknownSettings.add(setting.getKey());
            }
        }
    }

    private boolean trySetting(String key, String value) throws Exception {
        for (Method method : MessageStoreConfig.class.getMethods()) {
            if (method.getParameterCount() != 1 || !method.getName().equalsIgnoreCase("set" + key)) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            Object argument = type == String.class ? value
                : type == boolean.class ? Boolean.valueOf(value)
                : type == int.class ? Integer.valueOf(value)
                : type == long.class ? Long.valueOf(value)
                : type == double.class ? (Object) Double.valueOf(value) : null;
            if (argument != null) {
                method.invoke(config, argument);
                return true;
            }
        }
        return false;
    }

    /** Loads config/topics.json, which contains the topics with batch consume queues. */
    private void readTopics() throws IOException {
        File file = new File(root, "config/topics.json");
        String json = MixAll.file2String(file); // null: no file
        if (json == null) {
            return;
        }
        for (String name : new String[] {
            "org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper",
            "org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper"}) {
            try {
                Class<?> wrapper = Class.forName(name);
                for (Method method : wrapper.getMethods()) {
                    if (method.getName().equals("fromJson") && method.getParameterCount() == 2
                        && method.getParameterTypes()[0] == String.class) {
                        Object read = method.invoke(null, json, wrapper);
                        if (read != null) {
                            @SuppressWarnings("unchecked")
                            Map<String, TopicConfig> table =
                                (Map<String, TopicConfig>) wrapper.getMethod("getTopicConfigTable").invoke(read);
                            topics.putAll(table);
                        }
                        return;
                    }
                }
            } catch (ClassNotFoundException e) {
                // the class is in the other package
            } catch (ReflectiveOperationException e) {
                System.err.println("topics.json: " + describe(e));
                return;
            }
        }
    }

    private void construct() throws Exception {
        Class<?> kind = rocksDb() ? Class.forName("org.apache.rocketmq.store.RocksDBMessageStore") : DefaultMessageStore.class;
        Constructor<?> made = BrokerStatsManager.class.getConstructors()[0];
        for (Constructor<?> c : BrokerStatsManager.class.getConstructors()) {
            if (c.getParameterCount() > 0 && c.getParameterTypes()[0] == String.class && c.getParameterCount() <= 2) {
                made = c;
            }
        }
        statistics = (BrokerStatsManager) (made.getParameterCount() == 1 ? made.newInstance("c") : made.newInstance("c", true));
        MessageArrivingListener nobody = (topic, queue, offset, tags, time, bitmap, properties) -> { };
        for (Constructor<?> constructor : kind.getConstructors()) {
            if (constructor.getParameterCount() == 4) {
                store = (DefaultMessageStore) constructor.newInstance(config, statistics, nobody, new BrokerConfig());
            } else if (constructor.getParameterCount() == 5) {
                store = (DefaultMessageStore) constructor.newInstance(config, statistics, nobody, new BrokerConfig(), topics);
            }
            if (store != null) {
                return;
            }
        }
    }

    private boolean rocksDb() {
        return "defaultRocksDB".equalsIgnoreCase(settings.get("storeType"));
    }

    /** Gives the store the column family of half messages, as the broker does; it takes part in recovery. */
    private void addTransactions() throws ReflectiveOperationException {
        if (!"true".equals(settings.get("transRocksDBEnable"))) {
            return;
        }
        Class<?> kind = Class.forName("org.apache.rocketmq.store.transaction.TransMessageRocksDBStore");
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", 10911);
        Object transactions = kind.getConstructors()[0].newInstance(store, statistics, address);
        for (Method method : store.getClass().getMethods()) {
            if (method.getName().equals("setTransMessageRocksDBStore")) {
                method.invoke(store, transactions);
            }
        }
    }

    /** Suspends the delivery of delayed messages, which the store of 4.9.x does itself, and which would append messages. */
    private void holdDelayedMessages() throws ReflectiveOperationException {
        try {
            Object service = field(DefaultMessageStore.class, store, "scheduleMessageService");
            ((AtomicBoolean) field(service.getClass(), service, "started")).set(true);
        } catch (NoSuchFieldException e) {
            // in 5.x, the broker delivers them
        }
    }

    /** Enables reads, which the store refuses before start(). */
    private void allowReads() throws ReflectiveOperationException {
        Field flag = DefaultMessageStore.class.getDeclaredField("shutdown");
        flag.setAccessible(true);
        flag.set(store, false);
    }

    private void start() throws Exception {
        long end = System.currentTimeMillis() + wait * 1000L;
        if ("true".equals(settings.get("enableDLegerCommitLog"))) {
            // start() of 4.9.x blocks until all is dispatched, and only a leader has a max offset: run it in a thread
            Throwable[] failure = new Throwable[1];
            Thread starter = inThread(() -> store.start(), failure);
            while (System.currentTimeMillis() < end && !isLeader() && failure[0] == null) {
                Thread.sleep(50);
            }
            leader = isLeader();
            await(starter, failure);
            while (System.currentTimeMillis() < end && !committed()) {
                Thread.sleep(20); // until then, the store's end is outdated, and dispatchBehindBytes() is 0
            }
        } else {
            Throwable[] failure = new Throwable[1];
            await(inThread(() -> store.start(), failure), failure);
        }
        end = System.currentTimeMillis() + wait * 1000L;
        for (int calm = 0; calm < 5 && System.currentTimeMillis() < end; Thread.sleep(100)) {
            behind = store.dispatchBehindBytes();
            calm = behind <= 0 ? calm + 1 : 0;
        }
    }

    /** Waits for start(), which in 4.9.x never ends if re-dispatch stops before the end of the log. */
    private void await(Thread starter, Throwable[] failure) throws Exception {
        long last = Long.MAX_VALUE;
        long since = System.currentTimeMillis();
        for (starter.join(1000); starter.isAlive(); starter.join(100)) {
            long now = store.dispatchBehindBytes();
            if (now != last) {
                last = now;
                since = System.currentTimeMillis();
            } else if (System.currentTimeMillis() > since + (now > 0 ? still : wait) * 1000L) {
                throw new IllegalStateException("start() does not end: re-dispatch is " + now + " bytes behind");
            }
        }
        if (failure[0] instanceof Error) {
            throw (Error) failure[0];
        } else if (failure[0] != null) {
            throw (Exception) failure[0];
        }
    }

    private boolean isLeader() {
        try {
            Object log = store.getCommitLog();
            Object server = log.getClass().getMethod("getdLedgerServer").invoke(log);
            Object member = server.getClass().getMethod("getMemberState").invoke(server);
            return (Boolean) member.getClass().getMethod("isLeader").invoke(member);
        } catch (ReflectiveOperationException | RuntimeException e) {
            return false;
        }
    }

    /** Returns whether the leader has committed all entries of its log. */
    private boolean committed() throws ReflectiveOperationException {
        Object log = store.getCommitLog();
        Object server = log.getClass().getMethod("getdLedgerServer").invoke(log);
        Object entries = server.getClass().getMethod("getdLedgerStore").invoke(server);
        Object done = entries.getClass().getMethod("getCommittedIndex").invoke(entries);
        return done.equals(entries.getClass().getMethod("getLedgerEndIndex").invoke(entries));
    }

    private void shutDown() throws InterruptedException {
        Throwable[] failure = new Throwable[1];
        Thread stopper = inThread(() -> store.shutdown(), failure);
        long end = System.currentTimeMillis() + 120000;
        for (boolean woken = !brisk; stopper.isAlive() && System.currentTimeMillis() < end; stopper.join(10)) {
            if (!woken && naps(stopper)) {
                stopper.interrupt();
                woken = true;
            }
        }
        statistics.shutdown();
        shutdownState = stopper.isAlive() ? "hung"
            : failure[0] != null ? describe(failure[0])
            : new File(root, "abort").exists() ? "abort kept" : "clean";
    }

    /** Skips the sleep of 1 to 3 s in shutdown(), which is for running requests: there are none. */
    private static boolean naps(Thread stopper) {
        StackTraceElement[] stack = stopper.getStackTrace();
        for (int i = 0; i + 1 < stack.length; i++) {
            if (stack[i].getMethodName().equals("sleep") && stack[i + 1].getMethodName().equals("shutdown")) {
                return stack[i + 1].getClassName().equals(DefaultMessageStore.class.getName());
            }
        }
        return false;
    }

    private interface Action {
        void run() throws Exception;
    }

    private static Thread inThread(Action action, Throwable[] failure) {
        Thread thread = new Thread(() -> {
            try {
                action.run();
            } catch (Throwable e) {
                failure[0] = e;
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Returns all queues in the directory, the loaded table and RocksDB. */
    private TreeMap<String, TreeSet<Integer>> queueNames() {
        TreeMap<String, TreeSet<Integer>> names = new TreeMap<>();
        for (String folder : new String[] {"consumequeue", "batchconsumequeue"}) {
            for (File topic : folders(new File(root, folder))) {
                for (File queue : folders(topic)) {
                    if (queue.getName().matches("\\d+")) {
                        add(names, topic.getName(), Integer.parseInt(queue.getName()));
                    }
                }
            }
        }
        try {
            Map<?, ?> table = (Map<?, ?>) call("getConsumeQueueTable");
            table.forEach((topic, queues) -> ((Map<?, ?>) queues).keySet().forEach(queue -> add(names, (String) topic, (Integer) queue)));
        } catch (ReflectiveOperationException | RuntimeException e) {
            System.err.println("consume queue table: " + describe(e));
        }
        rocksDbQueueNames(names);
        if (rocksDb()) {
            for (TopicConfig topic : topics.values()) {
                for (int queue = 0; queue < Math.max(topic.getReadQueueNums(), topic.getWriteQueueNums()); queue++) {
                    add(names, topic.getTopicName(), queue);
                }
            }
        }
        return names;
    }

    /** Returns the queues of the RocksDB, or of the RocksDB beside queues in files. */
    private void rocksDbQueueNames(TreeMap<String, TreeSet<Integer>> names) {
        boolean beside = "true".equals(settings.get("rocksdbCQDoubleWriteEnable"));
        if (!rocksDb() && !beside) {
            return;
        }
        try {
            Object queueStore = call("getQueueStore");
            if (!rocksDb()) {
                queueStore = field(queueStore.getClass(), queueStore, "rocksDBConsumeQueueStore");
            }
            Object table = field(queueStore.getClass(), queueStore, "rocksDBConsumeQueueOffsetTable");
            Function<Object, Boolean> all = entry -> true;
            Consumer<Object> collect = entry -> {
                try {
                    String topic = (String) entry.getClass().getField("topic").get(entry);
                    if (!"CHECKPOINT_TOPIC".equals(topic)) {
                        add(names, topic, (Integer) entry.getClass().getField("queueId").get(entry));
                    }
                } catch (ReflectiveOperationException e) {
                    throw new IllegalStateException(e);
                }
            };
            for (Method method : table.getClass().getMethods()) {
                if (method.getName().equals("forEach") && method.getParameterCount() == 2) {
                    method.setAccessible(true);
                    method.invoke(table, all, collect);
                    return;
                }
            }
        } catch (ReflectiveOperationException | RuntimeException e) {
            System.err.println("queues of RocksDB: " + describe(e));
        }
    }

    private static File[] folders(File parent) {
        File[] found = parent.listFiles(File::isDirectory);
        return found == null ? new File[0] : found;
    }

    private static void add(TreeMap<String, TreeSet<Integer>> names, String topic, int queue) {
        names.computeIfAbsent(topic, key -> new TreeSet<>()).add(queue);
    }

    private void readQueue(String topic, int queue) throws Exception {
        long min = ((Number) call("getMinOffsetInQueue", topic, queue)).longValue();
        long max = ((Number) call("getMaxOffsetInQueue", topic, queue)).longValue();
        long good = 0;
        long bad = 0;
        long firstBad = -1;
        List<String> why = new ArrayList<>();
        StringBuilder messages = new StringBuilder();
        for (long offset = Math.max(0, min); offset < max; offset++) {
            Found found = new Found();
            String reason = read(topic, queue, offset, found);
            if (reason == null) {
                good++;
                if (list) {
                    MessageExt m = found.message;
                    messages.append(messages.length() > 0 ? "," : "").append('[').append(offset).append(',').append(m.getCommitLogOffset())
                        .append(',').append(m.getStoreSize()).append(',').append(m.getBodyCRC()).append(',').append(quote(sha1(found.raw))).append(']');
                }
                continue;
            }
            firstBad = bad++ == 0 ? offset : firstBad;
            if (why.size() < badList) {
                why.add(quote(offset + ":" + reason));
            }
        }
        StringBuilder answer = new StringBuilder("{\"min\":" + min + ",\"max\":" + max + ",\"readable\":" + good
            + ",\"first_bad\":" + (bad == 0 ? "null" : "" + firstBad));
        if (bad > 0) {
            answer.append(",\"bad\":").append(bad).append(",\"why\":[").append(String.join(",", why)).append(']');
        }
        if (list) {
            answer.append(",\"messages\":[").append(messages).append(']');
        }
        if (pull > 0) {
            answer.append(",\"pulled\":").append(Pulls.of(store, topic, queue, min, pull));
        }
        queues.put(topic + "/" + queue, answer.append('}').toString());
        offsets += Math.max(0, max - Math.max(0, min));
        readable += good;
    }

    /** The message that was read, and its record as a consumer receives it. */
    private static final class Found {
        private MessageExt message;
        private byte[] raw;
    }

    private static String sha1(byte[] bytes) throws NoSuchAlgorithmException {
        return String.format("%040x", new BigInteger(1, MessageDigest.getInstance("SHA-1").digest(bytes)));
    }

    /** Returns null if the message at a queue offset is complete and the right one, otherwise the reason. */
    private String read(String topic, int queue, long offset, Found found) {
        boolean light = topic.startsWith("%LMQ%"); // a light queue's messages have the name and offset of their own topic
        GetMessageResult result = null;
        try {
            result = store.getMessage("__oracle", topic, queue, offset, 1, null);
            if (result == null) {
                return "null result";
            }
            if (result.getStatus() != GetMessageStatus.FOUND || result.getMessageBufferList().isEmpty()) {
                return String.valueOf(result.getStatus());
            }
            ByteBuffer buffer = result.getMessageBufferList().get(0);
            byte[] raw = new byte[buffer.remaining()];
            buffer.duplicate().get(raw);
            MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(raw), true, false);
            if (message == null) {
                return "decode null";
            }
            found.message = message;
            found.raw = raw;
            byte[] body = message.getBody();
            if ((body == null || body.length == 0 ? 0 : UtilAll.crc32(body)) != message.getBodyCRC()) {
                return "body crc";
            }
            if (!light && !topic.equals(message.getTopic())) {
                return "topic " + message.getTopic();
            }
            if (!light && queue != message.getQueueId()) {
                return "queueId " + message.getQueueId();
            }
            long base = message.getQueueOffset();
            String inner = message.getProperty("INNER_NUM");
            if (inner != null && (message.getSysFlag() & 0x80) != 0) {
                if (offset < base || offset >= base + Long.parseLong(inner)) {
                    return "inner offset " + base;
                }
            } else if (!light && base != offset) {
                return "queueOffset " + base;
            }
            if (MessageDecoder.decode(ByteBuffer.wrap(raw), true, true) == null) {
                return "decompress";
            }
            MessageExt looked = store.lookMessageByOffset(message.getCommitLogOffset());
            if (looked == null) {
                return "lookMessageByOffset null";
            }
            return light || topic.equals(looked.getTopic()) ? null : "look topic";
        } catch (Throwable e) {
            return describe(e);
        } finally {
            if (result != null) {
                result.release();
            }
        }
    }

    private Object call(String name, Object... arguments) throws ReflectiveOperationException {
        Class<?>[] types = arguments.length == 0 ? new Class<?>[0] : new Class<?>[] {String.class, int.class};
        Method method = store.getClass().getMethod(name, types);
        method.setAccessible(true);
        return method.invoke(store, arguments);
    }

    static Object field(Class<?> owner, Object of, String name) throws ReflectiveOperationException {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private String answer() {
        StringBuilder text = new StringBuilder("{\"load\":" + load + ",\"min_phy\":" + minPhy + ",\"max_phy\":" + maxPhy + ",\"queues\":{");
        String comma = "";
        for (Map.Entry<String, String> queue : queues.entrySet()) {
            text.append(comma).append(quote(queue.getKey())).append(':').append(queue.getValue());
            comma = ",";
        }
        text.append("},\"crash\":").append(crash == null ? "null" : quote(crash));
        text.append(",\"max_phy_after_load\":").append(maxPhyAfterLoad);
        text.append(",\"offsets\":").append(offsets).append(",\"readable\":").append(readable);
        text.append(",\"behind\":").append(start ? "" + behind : "null");
        text.append(",\"leader\":").append(leader);
        text.append(",\"shutdown\":").append(shutdownState == null ? "null" : quote(shutdownState));
        text.append(",\"puts\":").append(puts).append(",\"by_key\":").append(byKey).append(",\"rounds\":").append(rounds);
        List<String> unknown = new ArrayList<>();
        unknownSettings.forEach(setting -> unknown.add(quote(setting)));
        return text.append(",\"unknown_settings\":[").append(String.join(",", unknown)).append("]}").toString();
    }

    private static String describe(Throwable e) {
        Throwable cause = e;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        StackTraceElement[] stack = cause.getStackTrace();
        return cause + (stack.length > 0 ? " at " + stack[0] : "");
    }

    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < 32 || Character.isSurrogate(c)) {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
