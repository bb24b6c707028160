import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A small client for a whole broker; prints one JSON object per message and line.
 *
 * <pre>
 * Client produce NAMESRV TOPIC COUNT      sends COUNT messages
 * Client read    NAMESRV TOPIC            reads every queue of a topic from its minimum to its maximum offset
 * Client resume  NAMESRV TOPIC GROUP      the same from the offsets of a consumer group, as its consumers would
 * Client traffic NAMESRV TOPIC SECONDS    sends 1 KiB messages, and commits the end of every queue as a consumer group
 * Client flood NAMESRV TOPIC SECONDS      sends 1 KiB messages without a pause, and prints after each second: time (ms) and
 *                                         number of messages
 * </pre>
 */
public final class Client {
    private static final long PATIENCE_MS = 300_000;

    private Client() {
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("produce")) {
            produce(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
        } else if (arguments[0].equals("traffic")) {
            traffic(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
        } else if (arguments[0].equals("flood")) {
            flood(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
        } else {
            read(arguments[1], arguments[2], arguments.length > 3 ? arguments[3] : null);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void produce(String nameServer, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("rmqstore_producer");
        producer.setNamesrvAddr(nameServer);
        producer.setVipChannelEnabled(false);
        producer.start();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        for (int i = 0; i < count; ) {
            byte[] body = ("after " + i).getBytes(StandardCharsets.UTF_8);
            try {
                SendResult result = producer.send(new Message(topic, "after", "after" + i, body), 5000);
                CRC32 crc = new CRC32();
                crc.update(body);
                print(topic, result.getMessageQueue().getQueueId(), result.getQueueOffset(), -1, crc.getValue() & 0x7FFFFFFF,
                    result.getOffsetMsgId());
                i++;
            } catch (Exception e) { // no route yet: the broker registers some seconds after its start
                if (System.currentTimeMillis() > end) {
                    throw e;
                }
                Thread.sleep(300);
            }
        }
    }

    @SuppressWarnings("deprecation")
    private static void traffic(String nameServer, String topic, int seconds) throws Exception {
        produce(nameServer, topic, 1); // creates the topic
        DefaultMQProducer producer = new DefaultMQProducer("rmqstore_traffic");
        producer.setNamesrvAddr(nameServer);
        producer.setVipChannelEnabled(false);
        producer.start();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("rmqstore_group");
        consumer.setNamesrvAddr(nameServer);
        consumer.setVipChannelEnabled(false);
        consumer.start();
        queues(consumer, topic);
        byte[] body = new byte[1024];
        long end = System.currentTimeMillis() + seconds * 1000L;
        for (int i = 0; System.currentTimeMillis() < end; i++) {
            try {
                SendResult result = producer.send(new Message(topic, "tag", "key" + i, body), 5000);
                MessageQueue queue = result.getMessageQueue();
                consumer.pull(queue, "*", result.getQueueOffset(), 1, 5000);
                consumer.updateConsumeOffset(queue, result.getQueueOffset() + 1);
                consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            } catch (MQClientException e) {
                throw e;
            } catch (Exception e) { // a busy broker refuses requests or times out
                Thread.sleep(20);
            }
            Thread.sleep(5);
        }
    }

    private static void flood(String nameServer, String topic, int seconds) throws Exception {
        produce(nameServer, topic, 1); // creates the topic
        DefaultMQProducer producer = new DefaultMQProducer("rmqstore_flood");
        producer.setNamesrvAddr(nameServer);
        producer.setVipChannelEnabled(false);
        producer.start();
        byte[] body = new byte[1024];
        long begin = System.currentTimeMillis();
        for (int second = 1; second <= seconds; second++) {
            int count = 0;
            for (; System.currentTimeMillis() < begin + second * 1000L; count++) {
                producer.send(new Message(topic, "tag", "key" + count, body), 5000);
            }
            System.out.println(System.currentTimeMillis() + " " + count);
        }
    }

    @SuppressWarnings("deprecation")
    private static void read(String nameServer, String topic, String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group == null ? "rmqstore_reader" : group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setVipChannelEnabled(false);
        consumer.start();
        for (MessageQueue queue : queues(consumer, topic)) {
            long max = consumer.maxOffset(queue);
            long start = group == null ? consumer.minOffset(queue) : consumer.fetchConsumeOffset(queue, true);
            for (long offset = start; offset < max; ) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getMsgFoundList() != null) {
                    for (MessageExt m : result.getMsgFoundList()) {
                        print(topic, m.getQueueId(), m.getQueueOffset(), m.getCommitLogOffset(), m.getBodyCRC(), m.getMsgId());
                    }
                }
                if (result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(queue + ": " + result.getPullStatus() + " at " + offset + " of " + max);
                }
                offset = result.getNextBeginOffset();
            }
        }
    }

    private static TreeSet<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                return new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic));
            } catch (MQClientException e) {
                if (System.currentTimeMillis() > end) {
                    throw e;
                }
                Thread.sleep(300);
            }
        }
    }

    private static void print(String topic, int queueId, long queueOffset, long commitLogOffset, long bodyCrc, String id) {
        System.out.println("{\"topic\":\"" + topic + "\",\"queue_id\":" + queueId + ",\"queue_offset\":" + queueOffset
            + ",\"commitlog_offset\":" + commitLogOffset + ",\"body_crc\":" + bodyCrc + ",\"id\":\"" + id + "\"}");
    }
}
