import java.io.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.lang.reflect.*;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.impl.producer.*;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Generates the traffic of the fixtures: every kind of message that a client can send.
 *
 * <pre>Flow NAMESRV SEED SENT.jsonl [key=value]…</pre>
 *
 * Appends one line per acknowledged send to SENT.jsonl; the last line of stdout is a JSON object with counts.
 */
public class Flow {
    static String ns;
    static long seed;
    static Random R;
    static PrintWriter sent;
    static TreeMap<String, Integer> kinds = new TreeMap<>(), topics = new TreeMap<>();
    static TreeMap<String, Object> extra = new TreeMap<>();
    static AtomicInteger acked = new AtomicInteger();
    static Map<String, String> kv = new HashMap<>();
    static String g(String k, String d) {
        return kv.getOrDefault(k, d);
    }
    static int gi(String k, int d) {
        return Integer.parseInt(g(k, "" + d));
    }
    static boolean gb(String k) {
        return Boolean.parseBoolean(g(k, "false"));
    }
    static String esc(Object o) {
        if (o == null)
            return "null";
        if (o instanceof Number || o instanceof Boolean)
            return o.toString();
        if (o instanceof Map) {
            StringBuilder b = new StringBuilder("{");
            for (Object e : ((Map) o).entrySet()) {
                if (b.length() > 1)
                    b.append(',');
                b.append(esc(((Map.Entry) e).getKey())).append(':').append(esc(((Map.Entry) e).getValue()));
            }
            return b.append('}').toString();
        }
        if (o instanceof Collection) {
            StringBuilder b = new StringBuilder("[");
            for (Object e : (Collection) o) {
                if (b.length() > 1)
                    b.append(',');
                b.append(esc(e));
            }
            return b.append(']').toString();
        }
        StringBuilder b = new StringBuilder("\"");
        for (char c : o.toString().toCharArray()) {
            if (c == '"' || c == '\\')
                b.append('\\').append(c);
            else if (c < 32)
                b.append(String.format("\\u%04x", (int) c));
            else
                b.append(c);
        }
        return b.append('"').toString();
    }
    static long crc(byte[] b) {
        CRC32 c = new CRC32();
        c.update(b);
        return c.getValue();
    }
    static synchronized void rec(String kind, Message m, SendResult r, byte[] body, String comp) {
        kinds.merge(kind, 1, Integer::sum);
        if (r == null)
            return;
        int q = r.getMessageQueue() == null ? -1 : r.getMessageQueue().getQueueId();
        topics.merge(m.getTopic(), 1, Integer::sum);
        LinkedHashMap<String, Object> o = new LinkedHashMap<>();
        o.put("kind", kind);
        o.put("topic", m.getTopic());
        o.put("queueId", q);
        o.put("queueOffset", r.getQueueOffset());
        o.put("status", r.getSendStatus().toString());
        o.put("msgId", r.getMsgId());
        o.put("offsetMsgId", r.getOffsetMsgId());
        o.put("tags", m.getTags());
        o.put("keys", m.getKeys());
        o.put("body_len", body.length);
        o.put("body_crc32", crc(body));
        o.put("compress", comp);
        if (r.getTransactionId() != null)
            o.put("transactionId", r.getTransactionId());
        sent.println(esc(o));
        sent.flush();
        acked.incrementAndGet();
    }
    static DefaultMQProducer producer(String group, String comp) throws Exception {
        if (comp != null)
            System.setProperty("rocketmq.message.compressType", comp);
        else
            System.clearProperty("rocketmq.message.compressType");
        DefaultMQProducer p = new DefaultMQProducer(group);
        p.setNamesrvAddr(ns);
        p.setInstanceName("I" + System.nanoTime());
        p.setSendMsgTimeout(4000);
        p.setRetryTimesWhenSendFailed(1);
        p.setVipChannelEnabled(false);
        p.setHeartbeatBrokerInterval(3000);
        p.setPollNameServerInterval(2000);
        p.start();
        return p;
    }
    static final String[] TAGS = {"TagA", "TagB", "订单", "支付成功", null, "tag-c", "TagA", "Очередь"};
    static Object[] body(int i) {
        switch (i % 9) {
            case 0:
                return new Object[] {"text",
                    ("message " + i + " of seed " + seed + ", 中文正文 " + R.nextInt())
                        .getBytes(java.nio.charset.StandardCharsets.UTF_8)};
            case 1:
            case 5:
                return new Object[] {"json",
                    ("{\"id\":" + i + ",\"amount\":" + R.nextInt(100000) / 100.0 + ",\"user\":\"用户" + R.nextInt(1000)
                        + "\",\"items\":[" + R.nextInt(9) + "," + R.nextInt(9) + "]}")
                        .getBytes(java.nio.charset.StandardCharsets.UTF_8)};
            case 2: {
                byte[] b = new byte[1 + R.nextInt(1500)];
                R.nextBytes(b);
                return new Object[] {"binary", b};
            }
            case 3:
                return new Object[] {"tiny", new byte[] {(byte) R.nextInt(256)}};
            case 4: {
                StringBuilder b = new StringBuilder();
                int n = 4200 + R.nextInt(16000);
                while (b.length() < n)
                    b.append("{\"k\":").append(R.nextInt(50)).append(",\"s\":\"repeat repeat\"},");
                return new Object[] {"large", b.toString().getBytes()};
            }
            case 6:
                if (i % 2 == 0) {
                    byte[] b = new byte[4097 + R.nextInt(4000)];
                    R.nextBytes(b);
                    return new Object[] {"large-random", b};
                }
                return new Object[] {"text", ("x" + i).getBytes()};
            case 7: {
                byte[] b = new byte[200 + R.nextInt(800)];
                Arrays.fill(b, (byte) ('a' + i % 26));
                return new Object[] {"text", b};
            }
            default: {
                byte[] b = new byte[4096];
                Arrays.fill(b, (byte) 0);
                return new Object[] {"zeros-4096", b};
            }
        }
    }
    static Message msg(String topic, int i, byte[] b) {
        Message m = new Message(topic, b);
        String t = TAGS[R.nextInt(TAGS.length)];
        if (t != null)
            m.setTags(t);
        int nk = R.nextInt(4);
        if (nk > 0) {
            List<String> ks = new ArrayList<>();
            for (int k = 0; k < nk; k++)
                ks.add(k == 0 ? "ord" + seed + "_" + i : k == 1 ? "用户" + R.nextInt(30) : "k" + R.nextInt(100));
            m.setKeys(ks);
        }
        if (i % 7 == 0)
            m.putUserProperty("region", "华东" + i % 3);
        if (i % 11 == 0)
            m.setFlag(i);
        return m;
    }
    static String[] T() {
        return new String[] {"Order_" + seed, "log-" + Long.toHexString(seed * 7919), "Pay_" + (seed % 97) + "_Topic"};
    }
    static void waitReady(String topic) throws Exception {
        long end = System.currentTimeMillis() + 45000;
        while (true) {
            DefaultMQProducer p = null;
            try {
                p = producer("PG_ready", null);
                Message m = new Message(topic, "first", "ready", ("ready " + seed).getBytes());
                byte[] b = m.getBody();
                SendResult r = p.send(m, 3000);
                rec("ready", m, r, b, "none");
                p.shutdown();
                return;
            } catch (Exception e) {
                if (p != null)
                    p.shutdown();
                if (System.currentTimeMillis() > end)
                    throw e;
                Thread.sleep(300);
            }
        }
    }
    static void plain(DefaultMQProducer[] ps, String[] comps, int from, int n, String[] ts, long killPid, int killAt)
        throws Exception {
        AtomicBoolean dead = new AtomicBoolean();
        Thread k = null;
        for (int i = from; i < from + n; i++) {
            Object[] kb = body(i);
            byte[] b = (byte[]) kb[1];
            Message m = msg(ts[R.nextInt(ts.length)], i, b);
            int pi = i % ps.length;
            boolean c = b.length >= 4096;
            String comp = c ? comps[pi] : "none";
            if (killPid > 0 && acked.get() >= killAt && k == null) {
                final int base = from + n;
                for (int t = 0; t < 3; t++) {
                    final int tt = t;
                    Thread th = new Thread(() -> {
                        try {
                            Random r2 = new Random(seed * 31 + tt);
                            for (int j = 0; !dead.get() && j < 200000; j++) {
                                byte[] bb = new byte[1 + r2.nextInt(3000)];
                                r2.nextBytes(bb);
                                Message mm = new Message(ts[r2.nextInt(ts.length)], "kill", "kk" + j, bb);
                                SendResult r = ps[0].send(mm, 1500);
                                rec("concurrent", mm, r, bb, "none");
                            }
                        } catch (Exception e) {
                        }
                    });
                    th.setDaemon(true);
                    th.start();
                }
                k = new Thread(() -> {
                    try {
                        Thread.sleep(300 + Math.abs(seed * 37) % 400);
                        new ProcessBuilder("kill", "-9", "" + killPid).start().waitFor();
                        Thread.sleep(50);
                        dead.set(true);
                        extra.put("killed_after_acked", acked.get());
                    } catch (Exception e) {
                        e.printStackTrace();
                    }
                });
                k.start();
                k.join();
                return;
            }
            try {
                SendResult r = ps[pi].send(m);
                rec("plain-" + kb[0], m, r, b, comp);
            } catch (Exception e) {
                kinds.merge("failed", 1, Integer::sum);
                if (killPid <= 0 && kinds.get("failed") < 4)
                    e.printStackTrace();
            }
        }
    }
    public static void main(String[] a) throws Exception {
        ns = a[0];
        seed = Long.parseLong(a[1]);
        R = new Random(seed);
        sent = new PrintWriter(new OutputStreamWriter(new FileOutputStream(a[2], true), "UTF-8"));
        for (int i = 3; i < a.length; i++) {
            int p = a[i].indexOf('=');
            kv.put(a[i].substring(0, p), a[i].substring(p + 1));
        }
        int n = gi("n", 400), from = gi("from", 0);
        long killPid = Long.parseLong(g("kill", "0"));
        String[] ts = T();
        String only = g("topic", null);
        if (only != null)
            ts = new String[] {only};
        waitReady(ts[0]);
        String[] comps = g("comps", "ZLIB,ZLIB,LZ4,ZSTD").split(",");
        Map<String, DefaultMQProducer> pm = new LinkedHashMap<>();
        DefaultMQProducer[] ps = new DefaultMQProducer[comps.length];
        for (int i = 0; i < comps.length; i++) {
            if (!pm.containsKey(comps[i]))
                pm.put(comps[i], producer("PG_" + comps[i], comps[i]));
            ps[i] = pm.get(comps[i]);
        }
        int killAt = gi("killAt", n / 2);
        if (gb("delay")) {
            int[] lv = {1, 1, 1, 3, 3, 5, 18};
            for (int i = 0; i < lv.length * 2; i++) {
                Message m =
                    msg(ts[i % ts.length], 90000 + i, ("delayed level " + lv[i % lv.length] + " #" + i).getBytes());
                m.setDelayTimeLevel(lv[i % lv.length]);
                byte[] b = m.getBody();
                SendResult r = ps[0].send(m);
                rec("delay-level-" + lv[i % lv.length], m, r, b, "none");
            }
        }
        TransactionMQProducer tp = null;
        if (gb("tx")) {
            System.clearProperty("rocketmq.message.compressType");
            tp = new TransactionMQProducer("PG_tx_" + seed);
            tp.setNamesrvAddr(ns);
            tp.setInstanceName("TX" + System.nanoTime());
            tp.setVipChannelEnabled(false);
            tp.setTransactionListener(new TransactionListener() {
                public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                    return (LocalTransactionState) arg;
                }
                public LocalTransactionState checkLocalTransaction(MessageExt m) {
                    synchronized (Flow.class) {
                        kinds.merge("tx-check", 1, Integer::sum);
                    }
                    return m.getKeys() != null && m.getKeys().contains("lateCommit")
                        ? LocalTransactionState.COMMIT_MESSAGE
                        : m.getKeys() != null && m.getKeys().contains("lateRollback")
                        ? LocalTransactionState.ROLLBACK_MESSAGE
                        : LocalTransactionState.UNKNOW;
                }
            });
            tp.start();
            LocalTransactionState[] st = {LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE,
                LocalTransactionState.UNKNOW, LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.UNKNOW,
                LocalTransactionState.UNKNOW};
            String[] nm = {"commit", "rollback", "unknown", "commit", "late-commit", "late-rollback"};
            for (int i = 0; i < 24; i++) {
                int x = i % 6;
                Message m = new Message(ts[(i / 6) % ts.length], "TxTag",
                    "tx" + seed + "_" + i
                        + (x == 4        ? " lateCommit"
                                : x == 5 ? " lateRollback"
                                         : ""),
                    ("transaction " + nm[x] + " " + i).getBytes());
                byte[] b = m.getBody();
                TransactionSendResult r = tp.sendMessageInTransaction(m, st[x]);
                rec("tx-" + nm[x], m, r, b, "none");
            }
        }
        if (gb("batch")) {
            for (int j = 0; j < 3; j++) {
                List<Message> l = new ArrayList<>();
                for (int i = 0; i < 5 + j * 3; i++) {
                    Message m = new Message(ts[j % ts.length], i % 2 == 0 ? "BatchTag" : "订单", "b" + j + "_" + i,
                        ("batch " + j + " item " + i).getBytes());
                    if (i % 3 == 0)
                        m.putUserProperty("p", "v" + i);
                    l.add(m);
                }
                SendResult r = ps[0].send(l);
                Message m = l.get(0);
                rec("batch", m, r, m.getBody(), "none");
                kinds.merge("batch-items", l.size(), Integer::sum);
                topics.merge(m.getTopic(), l.size() - 1, Integer::sum);
            }
        }
        plain(ps, comps, from, n, ts, killPid, killAt);
        if (killPid > 0) {
            finish();
            return;
        }
        if (gb("consume"))
            consume(ts);
        if (gb("formats"))
            Formats.run(ts, ps);
        int linger = gi("linger", 0);
        Thread.sleep(linger * 1000L);
        if (gi("n2", 0) > 0)
            plain(ps, comps, from + n, gi("n2", 0), ts, 0, 0);
        finish();
    }
    static void finish() {
        LinkedHashMap<String, Object> o = new LinkedHashMap<>();
        o.put("kinds", kinds);
        o.put("topics_acked", topics);
        o.put("acked_calls", acked.get());
        o.put("extra", extra);
        sent.flush();
        System.out.println(esc(o));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
    static DefaultMQPushConsumer consumer(
        String group, String topic, String sub, int max, MessageListenerConcurrently l) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        c.setNamesrvAddr(ns);
        c.setInstanceName("C" + System.nanoTime());
        c.setVipChannelEnabled(false);
        c.subscribe(topic, sub);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setPullBatchSize(8);
        c.setConsumeThreadMin(2);
        c.setConsumeThreadMax(2);
        c.setPullInterval(30);
        c.setPersistConsumerOffsetInterval(1000);
        if (max >= 0)
            c.setMaxReconsumeTimes(max);
        c.registerMessageListener(l);
        return c;
    }
    static void consume(String[] ts) throws Exception {
        AtomicInteger c1 = new AtomicInteger(), f1 = new AtomicInteger(), c2 = new AtomicInteger(),
                      f2 = new AtomicInteger(), c3 = new AtomicInteger();
        DefaultMQPushConsumer a = consumer("CG_part_" + seed, ts[0], "*", 3, (ms, ctx) -> {
            MessageExt m = ms.get(0);
            if (m.getReconsumeTimes() == 0 && f1.get() < 12 && c1.get() % 3 == 0) {
                c1.incrementAndGet();
                f1.incrementAndGet();
                ctx.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            try {
                Thread.sleep(10);
            } catch (Exception e) {
            }
            c1.incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQPushConsumer b = consumer("CG_dlq_" + seed, ts[1], "*", 0, (ms, ctx) -> {
            c2.incrementAndGet();
            if (f2.get() < 7) {
                f2.incrementAndGet();
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQPushConsumer d = consumer("CG_tag_" + seed, ts[2 % ts.length], "TagA || 订单", -1, (ms, ctx) -> {
            c3.addAndGet(ms.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        a.start();
        b.start();
        d.start();
        Thread.sleep(gi("consumeSec", 7) * 1000L);
        a.shutdown();
        b.shutdown();
        d.shutdown();
        extra.put("consumed",
            new TreeMap<>(Map.of("CG_part_" + seed, c1.get(), "CG_part_retry_sent", f1.get(), "CG_dlq_" + seed,
                c2.get(), "CG_dlq_sent", f2.get(), "CG_tag_" + seed, c3.get())));
    }
}

/** Generates what only 5.x supports: timer messages, batch consume queues, light queues, compaction, long topics, pop. */
class Formats {
    static void note(String k, Object v) {
        synchronized (Flow.class) {
            Flow.extra.put(k, v);
        }
    }
    static String why(Throwable t) {
        while (t.getCause() != null)
            t = t.getCause();
        String s = t.toString();
        return s.length() > 160 ? s.substring(0, 160) : s;
    }
    static Object inv(Object o, String n, Object... a) throws Exception {
        for (Method m : o.getClass().getMethods())
            if (m.getName().equals(n) && m.getParameterCount() == a.length) {
                try {
                    return m.invoke(o, a);
                } catch (IllegalArgumentException e) {
                } catch (InvocationTargetException e) {
                    throw (Exception) e.getCause();
                }
            }
        throw new NoSuchMethodException(n);
    }
    static Object field(Object o, String n) throws Exception {
        for (Class<?> c = o.getClass(); c != null; c = c.getSuperclass())
            try {
                Field f = c.getDeclaredField(n);
                f.setAccessible(true);
                return f.get(o);
            } catch (NoSuchFieldException e) {
            }
        throw new NoSuchFieldException(n);
    }
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void run(String[] ts, DefaultMQProducer[] ps) throws Exception {
        long seed = Flow.seed;
        String addr = Flow.g("broker", null);
        DefaultMQAdminExt ad = new DefaultMQAdminExt();
        ad.setNamesrvAddr(Flow.ns);
        ad.setInstanceName("AD" + System.nanoTime());
        ad.setVipChannelEnabled(false);
        ad.start();
        // 1. timer messages
        try {
            int[] secs = {1, 2, 3, 5, 40, 600, 86400};
            int ok = 0;
            for (int i = 0; i < 14; i++) {
                Message m = Flow.msg(ts[i % ts.length], 70000 + i, ("timer " + secs[i % 7]).getBytes());
                MessageAccessor.putProperty(m, "TIMER_DELAY_SEC", "" + secs[i % 7]);
                byte[] b = m.getBody();
                SendResult r = ps[0].send(m);
                Flow.rec("timer-sec-" + secs[i % 7], m, r, b, "none");
                ok++;
            }
            note("timer", ok);
        } catch (Throwable t) {
            note("timer_error", why(t));
        }
        // 2. BatchCQ topic
        String bt = "BatchCq_" + seed;
        try {
            TopicConfig tc = new TopicConfig(bt);
            tc.setReadQueueNums(2);
            tc.setWriteQueueNums(2);
            Map<String, String> at = new HashMap<>();
            at.put("+queue.type", "BatchCQ");
            TopicConfig.class.getMethod("setAttributes", Map.class).invoke(tc, at);
            ad.createAndUpdateTopicConfig(addr, tc);
            Thread.sleep(500);
            for (int j = 0; j < 12; j++) {
                List<Message> l = new ArrayList<>();
                for (int i = 0; i < 2 + j % 5; i++)
                    l.add(new Message(bt, "bcq", "bk" + j + "_" + i, ("inner batch " + j + " " + i).getBytes()));
                SendResult r = ps[0].send(l);
                Flow.rec("inner-batch", l.get(0), r, l.get(0).getBody(), "none");
                Flow.kinds.merge("inner-batch-items", l.size(), Integer::sum);
            }
            for (int i = 0; i < 4; i++) {
                Message m = new Message(bt, "single", "s" + i, ("single in batchcq " + i).getBytes());
                byte[] b = m.getBody();
                SendResult r = ps[0].send(m);
                Flow.rec("batchcq-single", m, r, b, "none");
            }
        } catch (Throwable t) {
            note("batchcq_error", why(t));
        }
        // 3. LMQ
        try {
            for (int i = 0; i < 10; i++) {
                Message m = new Message(ts[0], "lmq", "lm" + i, ("lmq " + i).getBytes());
                MessageAccessor.putProperty(
                    m, "INNER_MULTI_DISPATCH", "%LMQ%dev_" + (i % 2) + "_" + seed + ",%LMQ%all_" + seed);
                byte[] b = m.getBody();
                SendResult r = ps[0].send(m);
                Flow.rec("lmq", m, r, b, "none");
            }
        } catch (Throwable t) {
            note("lmq_error", why(t));
        }
        // 4. compaction topic
        try {
            String ct = "Compact_" + seed;
            TopicConfig tc = new TopicConfig(ct);
            tc.setReadQueueNums(1);
            tc.setWriteQueueNums(1);
            Map<String, String> at = new HashMap<>();
            at.put("+cleanup.policy", "COMPACTION");
            TopicConfig.class.getMethod("setAttributes", Map.class).invoke(tc, at);
            ad.createAndUpdateTopicConfig(addr, tc);
            Thread.sleep(500);
            for (int i = 0; i < 20; i++) {
                Message m = new Message(ct, "c", "ck" + (i % 4), ("compact " + i).getBytes());
                byte[] b = m.getBody();
                SendResult r = ps[0].send(m);
                Flow.rec("compaction", m, r, b, "none");
            }
        } catch (Throwable t) {
            note("compaction_error", why(t));
        }
        // 5. topic longer than 127: a %RETRY% topic, sent past the client's own check
        String lg = "G" + seed + "_"
            + "abcdefghij".repeat(15),
               lt = "%RETRY%" + lg;
        try {
            Object impl = field(ps[0], "defaultMQProducerImpl");
            Object cf = field(impl, "mQClientFactory");
            Object api = inv(cf, "getMQClientAPIImpl");
            Class<?> hc;
            try {
                hc = Class.forName("org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader");
            } catch (ClassNotFoundException e) {
                hc = Class.forName("org.apache.rocketmq.common.protocol.header.SendMessageRequestHeader");
            }
            int ok = 0;
            for (int i = 0; i < 12; i++) {
                Message m = new Message(lt, "long", "lk" + i, ("long topic " + i).getBytes());
                MessageClientIDSetter.setUniqID(m);
                Object h = hc.getConstructor().newInstance();
                inv(h, "setProducerGroup", "PG_long");
                inv(h, "setTopic", lt);
                inv(h, "setDefaultTopic", "TBW102");
                inv(h, "setDefaultTopicQueueNums", 4);
                inv(h, "setQueueId", 0);
                inv(h, "setSysFlag", 0);
                inv(h, "setBornTimestamp", System.currentTimeMillis());
                inv(h, "setFlag", 0);
                inv(h, "setProperties", MessageDecoder.messageProperties2String(m.getProperties()));
                inv(h, "setReconsumeTimes", 0);
                inv(h, "setUnitMode", false);
                inv(h, "setBatch", false);
                try {
                    inv(h, "setBname", Flow.g("brokerName", "b"));
                } catch (Exception e) {
                }
                byte[] b = m.getBody();
                Object r = null;
                Exception last = null;
                for (Method mm : api.getClass().getMethods())
                    if (mm.getName().equals("sendMessage") && mm.getParameterCount() == 8
                        && mm.getParameterTypes()[2] == Message.class) {
                        Class<?> cm = mm.getParameterTypes()[5];
                        Object sync = null;
                        for (Object x : cm.getEnumConstants())
                            if (x.toString().equals("SYNC"))
                                sync = x;
                        try {
                            r = mm.invoke(api, addr, Flow.g("brokerName", "b"), m, h, 4000L, sync, null, impl);
                        } catch (InvocationTargetException e) {
                            last = (Exception) e.getCause();
                        }
                    }
                if (r != null) {
                    Flow.rec("long-topic", m, (SendResult) r, b, "none");
                    ok++;
                } else {
                    note("long_topic_error", last == null ? "no method" : why(last));
                    break;
                }
            }
            note("long_topic_len", lt.length());
            note("long_topic_ok", ok);
        } catch (Throwable t) {
            note("long_topic_error", why(t));
        }
        // 6. pop consumption with retry (pop retry topic = %RETRY%group_topic, longer than 127)
        try {
            String pt = "Pop_" + seed + "_"
                + "x".repeat(50),
                   pg = "PopGroup_" + seed + "_"
                + "y".repeat(70);
            TopicConfig tc = new TopicConfig(pt);
            tc.setReadQueueNums(2);
            tc.setWriteQueueNums(2);
            ad.createAndUpdateTopicConfig(addr, tc);
            Thread.sleep(300);
            for (int i = 0; i < 60; i++) {
                Message m = new Message(pt, "pop", "pk" + i, ("pop " + i).getBytes());
                byte[] b = m.getBody();
                SendResult r = ps[0].send(m);
                Flow.rec("pop", m, r, b, "none");
            }
            Class<?> mr = Class.forName("org.apache.rocketmq.common.message.MessageRequestMode");
            Object pop = null;
            for (Object x : mr.getEnumConstants())
                if (x.toString().equals("POP"))
                    pop = x;
            inv(ad, "setMessageRequestMode", addr, pt, pg, pop, 8, 3000L);
            AtomicInteger pc = new AtomicInteger(), pf = new AtomicInteger();
            DefaultMQPushConsumer c = Flow.consumer(pg, pt, "*", 3, (ms, ctx) -> {
                if (pf.get() < 25 && ms.get(0).getReconsumeTimes() == 0) {
                    pf.incrementAndGet();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                pc.addAndGet(ms.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            inv(c, "setClientRebalance", false);
            try {
                inv(c, "setPopInvisibleTime", 8000L);
            } catch (Exception e) {
            }
            c.start();
            Thread.sleep(Flow.gi("popSec", 22) * 1000L);
            c.shutdown();
            note("pop_consumed", pc.get());
            note("pop_failed_first", pf.get());
        } catch (Throwable t) {
            note("pop_error", why(t));
        }
        try {
            ad.shutdown();
        } catch (Throwable t) {
        }
    }
}
