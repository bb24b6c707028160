import java.io.File;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Measures the real DefaultMessageStore, and prints one JSON object as its last line.
 *
 * <p>load STORE [setting=value ...]: load() of a store, as at a broker start, including recovery.
 * put STORE BODY MESSAGES async|sync [setting=value ...]: putMessage() from one thread into a new store.
 * The process halts without a shutdown of the store, which is not measured.
 */
public final class Bench {
    private Bench() {}

    static void set(MessageStoreConfig config, String name, String value) throws Exception {
        for (Method method : MessageStoreConfig.class.getMethods()) {
            if (!method.getName().equalsIgnoreCase("set" + name) || method.getParameterCount() != 1) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            if (type == int.class) {
                method.invoke(config, Integer.valueOf(value));
            } else if (type == long.class) {
                method.invoke(config, Long.valueOf(value));
            } else if (type == boolean.class) {
                method.invoke(config, Boolean.valueOf(value));
            } else if (type == String.class) {
                method.invoke(config, value);
            } else {
                continue;
            }
            return;
        }
        throw new IllegalArgumentException("no such setting: " + name);
    }

    static MessageStoreConfig config(String root, String[] args, int from) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + File.separator + "commitlog");
        config.setHaListenPort(0);
        config.setFileReservedTime(720000);
        config.setCleanFileForciblyEnable(false);
        config.setTimerWheelEnable(false);
        config.setEnableCompaction(false);
        for (int i = from; i < args.length; i++) {
            int at = args[i].indexOf('=');
            set(config, args[i].substring(0, at), args[i].substring(at + 1));
        }
        return config;
    }

    static DefaultMessageStore store(MessageStoreConfig config) throws Exception {
        return new DefaultMessageStore(
                config,
                new BrokerStatsManager("bench", true),
                (topic, queue, offset, tags, time, bits, properties) -> {},
                new BrokerConfig(),
                new ConcurrentHashMap<>());
    }

    static void load(String[] args) throws Exception {
        DefaultMessageStore store = store(config(args[1], args, 2));
        long began = System.nanoTime();
        boolean loaded = store.load();
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf(
                "{\"loaded\": %b, \"seconds\": %.4f, \"max_offset\": %d}%n", loaded, seconds, store.getMaxPhyOffset());
    }

    static MessageExtBrokerInner message(int body, int number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("Order_0");
        message.setTags("TagA");
        message.setKeys(String.format("order%012d", number));
        MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("7F0000010A2B18B4AAC2%012X", number));
        MessageAccessor.putProperty(message, "CLUSTER", "DefaultCluster");
        message.setQueueId(number % 4);
        message.setBody(new byte[body]);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 50412));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    static void put(String[] args) throws Exception {
        int body = Integer.parseInt(args[2]);
        int messages = Integer.parseInt(args[3]);
        MessageStoreConfig config = config(args[1], args, 5);
        config.setFlushDiskType("sync".equals(args[4]) ? FlushDiskType.SYNC_FLUSH : FlushDiskType.ASYNC_FLUSH);
        DefaultMessageStore store = store(config);
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        int warm = Math.min(messages / 4, 20000);
        long began = 0;
        int good = 0;
        for (int i = -warm; i < messages; i++) {
            if (i == 0) {
                began = System.nanoTime();
            }
            PutMessageResult result = store.putMessage(message(body, i + warm));
            if (i >= 0 && result.isOk()) {
                good++;
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf(
                "{\"messages\": %d, \"ok\": %d, \"seconds\": %.4f, \"messages_per_second\": %.0f, \"max_offset\": %d}%n",
                messages, good, seconds, messages / seconds, store.getMaxPhyOffset());
    }

    public static void main(String[] args) throws Exception {
        try {
            if ("load".equals(args[0])) {
                load(args);
            } else if ("put".equals(args[0])) {
                put(args);
            } else {
                throw new IllegalArgumentException("load or put, not " + args[0]);
            }
            System.out.flush();
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }
}
