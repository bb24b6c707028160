import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages to a whole broker for later delivery.
 *
 * <pre>
 * Later timed  NAMESRV TOPIC COUNT MS        sends COUNT messages that are due after MS
 * Later half   NAMESRV TOPIC COUNT           sends COUNT half messages, and leaves their transactions open
 * Later decide NAMESRV SECONDS               commits every transaction that the broker asks for
 * </pre>
 */
public final class Later {
    private static final long PATIENCE_MS = 300_000;

    private Later() {
    }

    public static void main(String[] arguments) throws Exception {
        boolean decide = arguments[0].equals("decide");
        TransactionMQProducer producer = new TransactionMQProducer("rmqstore_transactions");
        producer.setNamesrvAddr(arguments[1]);
        producer.setVipChannelEnabled(false);
        producer.setTransactionListener(new Listener(decide));
        producer.start();
        if (decide) {
            send(producer, new Message("rmqstore_hello", "hello".getBytes(StandardCharsets.UTF_8)), false);
            Thread.sleep(Integer.parseInt(arguments[2]) * 1000L);
        } else {
            for (int i = 0; i < Integer.parseInt(arguments[3]); i++) {
                Message message = new Message(arguments[2], "later", "later" + i, (arguments[0] + " " + i).getBytes(StandardCharsets.UTF_8));
                if (arguments[0].equals("timed")) {
                    MessageAccessor.putProperty(message, "TIMER_DELAY_MS", arguments[4]);
                }
                send(producer, message, arguments[0].equals("half"));
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void send(TransactionMQProducer producer, Message message, boolean half) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                if (half) {
                    producer.sendMessageInTransaction(message, null);
                } else {
                    producer.send(message, 5000);
                }
                return;
            } catch (Exception e) { // no route yet: the broker registers some seconds after its start
                if (System.currentTimeMillis() > end) {
                    throw e;
                }
                Thread.sleep(300);
            }
        }
    }

    private static final class Listener implements TransactionListener {
        private final boolean commit;

        Listener(boolean commit) {
            this.commit = commit;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return commit ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }
}
