import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.exception.RemotingConnectException;
import org.apache.rocketmq.remoting.exception.RemotingTooMuchRequestException;

/**
 * Sends the messages that `rmqstore send` writes to its standard input, with the client of a RocketMQ installation.
 * Java 8 or later, clients 4.3 to 5.5.
 *
 * <pre>
 * input   name server, access key, secret key; patience in ms; then requests:
 *         T topic                                    does the topic have queues?
 *         M number, topic, queue, flag, n times (name, value), body
 *         Q                                          the end; without it, nothing more is sent
 *         texts and bodies: length as int, bytes; numbers: int, only the number of a message is a long
 * output  lines of fields between tabs:
 *         READY                                      or FAILED reason
 *         T topic queues reason                      queues: 0 if there are none, -1 if the cluster does not answer
 *         S number queue-offset id status            acknowledged by the broker
 *         R number reason                            refused; not stored
 *         U number reason                            unknown: it may be stored or not
 *         N number reason                            not sent: the cluster is not available
 * </pre>
 */
public final class Sender {
    private static final int THREADS = 8;
    private static final int TIMEOUT_MS = 10_000;
    private static final int SYSTEM_ERROR = 1;
    private static final int SYSTEM_BUSY = 2;
    private static final int SERVICE_NOT_AVAILABLE = 14;
    private static final int TOPIC_NOT_EXIST = 17;
    private static final int FIRST_CLIENT_CODE = 10_000; // of ClientErrorCode: no connection, no broker, no route
    private static final String TOPIC_OF_EVERY_BROKER = "SELF_TEST_TOPIC"; // TopicConfigManager, 4.3 to 5.5

    private final PrintStream out;
    private final DefaultMQProducer producer;
    private final long patience;
    private final Map<String, List<MessageQueue>> queues = new ConcurrentHashMap<>();
    private volatile boolean down;

    private Sender(PrintStream out, DefaultMQProducer producer, long patience) {
        this.out = out;
        this.producer = producer;
        this.patience = patience;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err); // what the client prints must not mix with the answers
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        int end = 1;
        try {
            String nameServer = text(in);
            DefaultMQProducer producer = new DefaultMQProducer("rmqstore_send", hook(text(in), text(in)));
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName("rmqstore" + System.nanoTime());
            producer.setVipChannelEnabled(false);
            producer.setMaxMessageSize(Integer.MAX_VALUE); // the broker decides
            Sender sender = new Sender(out, producer, in.readInt());
            producer.start();
            out.println("READY");
            end = sender.serve(in);
        } catch (Throwable e) {
            out.println("FAILED\t" + reason(e));
        }
        out.flush();
        Runtime.getRuntime().halt(end);
    }

    private int serve(DataInputStream in) throws Exception {
        ExecutorService[] workers = new ExecutorService[THREADS];
        for (int i = 0; i < THREADS; i++) {
            workers[i] = Executors.newSingleThreadExecutor();
        }
        while (true) {
            int request = in.read();
            if (request == 'T') {
                tellQueues(text(in));
            } else if (request == 'M') {
                long number = in.readLong();
                Message message = new Message();
                message.setTopic(text(in));
                int queue = in.readInt();
                message.setFlag(in.readInt());
                for (int left = in.readInt(); left > 0; left--) {
                    MessageAccessor.putProperty(message, text(in), text(in));
                }
                message.setBody(bytes(in));
                // messages of one queue go through one worker, and keep their order
                int worker = Math.floorMod(31 * message.getTopic().hashCode() + queue, THREADS);
                workers[worker].execute(() -> send(number, message, queue));
            } else if (request == 'Q') {
                break;
            } else {
                return 1; // rmqstore was killed
            }
        }
        for (ExecutorService worker : workers) {
            worker.shutdown();
        }
        for (ExecutorService worker : workers) {
            worker.awaitTermination(1, TimeUnit.HOURS);
        }
        return 0;
    }

    private void tellQueues(String topic) {
        long end = System.currentTimeMillis() + patience;
        String why = "";
        do {
            try {
                out.println("T\t" + topic + "\t" + queuesOf(topic).size() + "\t");
                return;
            } catch (Exception e) {
                why = reason(e);
                if (isMissing(e)) {
                    if (hasBroker()) {
                        out.println("T\t" + topic + "\t0\t" + why);
                        return;
                    }
                    why = "no broker has registered with the name server";
                }
            }
        } while (pause(end));
        out.println("T\t" + topic + "\t-1\t" + why);
    }

    private List<MessageQueue> queuesOf(String topic) throws MQClientException {
        List<MessageQueue> known = queues.get(topic);
        if (known == null) {
            known = new ArrayList<>(new TreeSet<>(producer.fetchPublishMessageQueues(topic)));
            queues.put(topic, known);
        }
        return known;
    }

    /**
     * Whether the name server knows a broker that can be written: without one, no topic exists. A 5.x broker registers
     * up to 10 s after its start (NettyRemotingClient#getAvailableNameSrvList is empty when it first tries).
     */
    private boolean hasBroker() {
        try {
            return !producer.fetchPublishMessageQueues(TOPIC_OF_EVERY_BROKER).isEmpty();
        } catch (MQClientException e) {
            return false;
        }
    }

    /** Whether the name server has answered that the topic does not exist, or that it has no queues to write. */
    private static boolean isMissing(Throwable e) {
        for (Throwable cause = e; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQClientException && ((MQClientException) cause).getResponseCode() == TOPIC_NOT_EXIST) {
                return true;
            }
        }
        return e.getCause() == null;
    }

    private void send(long number, Message message, int queue) {
        long end = System.currentTimeMillis() + patience;
        String why = "the cluster is not available";
        String refusal = null; // the broker's, which may be temporary
        while (!down) {
            try {
                List<MessageQueue> places = queuesOf(message.getTopic());
                SendResult result = producer.send(message, places.get(Math.floorMod(queue, places.size())), TIMEOUT_MS);
                out.println("S\t" + number + "\t" + result.getQueueOffset() + "\t" + result.getOffsetMsgId() + "\t"
                    + result.getSendStatus());
                return;
            } catch (MQBrokerException e) {
                why = reason(e);
                int code = e.getResponseCode();
                boolean busy = code == SYSTEM_BUSY || code == SERVICE_NOT_AVAILABLE || why.contains("busy");
                if (!busy) {
                    // SYSTEM_ERROR also stands for an exception in the broker, maybe after it stored the message;
                    // the ACL of 4.x comes before that (AclException)
                    boolean maybeStored = code == SYSTEM_ERROR && !why.contains("AclException");
                    out.println((maybeStored ? "U\t" : "R\t") + number + "\t" + why);
                    return;
                }
                refusal = why;
            } catch (RemotingConnectException | RemotingTooMuchRequestException e) {
                why = reason(e);
                refusal = null;
                queues.remove(message.getTopic()); // a broker may have moved
            } catch (MQClientException e) { // no route, no broker of this name, or an illegal message
                why = reason(e);
                refusal = null;
                queues.remove(message.getTopic());
                int code = e.getResponseCode();
                if (code > 0 && code < FIRST_CLIENT_CODE && code != TOPIC_NOT_EXIST) {
                    out.println("R\t" + number + "\t" + why);
                    return;
                }
            } catch (Throwable e) { // a timeout, a lost connection: the request may have arrived
                out.println("U\t" + number + "\t" + reason(e));
                return;
            }
            if (!pause(end)) {
                break;
            }
        }
        if (refusal == null) {
            down = true;
        }
        out.println((refusal == null ? "N\t" : "R\t") + number + "\t" + why);
    }

    private boolean pause(long end) {
        try {
            Thread.sleep(200);
        } catch (InterruptedException e) {
            return false;
        }
        return System.currentTimeMillis() < end;
    }

    private static RPCHook hook(String access, String secret) throws Exception {
        if (access.isEmpty()) {
            return null;
        }
        // since 4.4.0; by name, because older clients do not have the class
        String place = "org.apache.rocketmq.acl.common.";
        Class<?> credentials = Class.forName(place + "SessionCredentials");
        Object given = credentials.getConstructor(String.class, String.class).newInstance(access, secret);
        return (RPCHook) Class.forName(place + "AclClientRPCHook").getConstructor(credentials).newInstance(given);
    }

    private static String reason(Throwable e) {
        Throwable cause = e;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        String text = cause.getMessage() == null ? cause.toString() : cause.getMessage();
        if (cause instanceof MQBrokerException) {
            text = "CODE " + ((MQBrokerException) cause).getResponseCode() + " "
                + ((MQBrokerException) cause).getErrorMessage();
        }
        text = text.replaceAll("[\\x00-\\x1f\\x7f]+", " ").trim();
        return text.length() > 300 ? text.substring(0, 300) : text;
    }

    private static String text(DataInputStream in) throws Exception {
        return new String(bytes(in), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(DataInputStream in) throws Exception {
        byte[] data = new byte[in.readInt()];
        in.readFully(data);
        return data;
    }
}
