import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** Appends messages with the real putMessage, and waits until queues and index contain them. */
final class Puts {
    private static final long PATIENCE_MS = 60_000;

    private Puts() {
    }

    /**
     * Appends messages, and returns [queue id, queue offset, commitlog offset, size] of each of them as JSON. Message i
     * has the keys "put" and "puti". `light`: names of light queues, separated by commas, that also get every message.
     */
    static String append(DefaultMessageStore store, int count, String light) throws Exception {
        Method put = null;
        for (Method method : DefaultMessageStore.class.getMethods()) {
            // 4.9.x and 5.x keep MessageExtBrokerInner in different packages
            if (method.getName().equals("putMessage") && method.getParameterTypes()[0].getSimpleName().equals("MessageExtBrokerInner")) {
                put = method;
            }
        }
        List<String> answers = new ArrayList<>();
        long[] ends = new long[3];
        for (int i = 0; i < count; i++) {
            PutMessageResult result = (PutMessageResult) put.invoke(store, message(put.getParameterTypes()[0], i, light));
            if (!result.isOk()) {
                throw new IllegalStateException("put " + i + ": " + result.getPutMessageStatus());
            }
            AppendMessageResult appended = result.getAppendMessageResult();
            ends[i % 3] = appended.getLogicsOffset() + 1;
            answers.add("[" + i % 3 + "," + appended.getLogicsOffset() + "," + appended.getWroteOffset() + "," + appended.getWroteBytes() + "]");
        }
        await(store, ends);
        return "[" + String.join(",", answers) + "]";
    }

    private static Object message(Class<?> kind, int number, String light) throws Exception {
        MessageExt message = (MessageExt) kind.getConstructor().newInstance();
        message.setTopic("Order");
        message.setTags("TagP");
        message.setKeys("put put" + number);
        MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("PUT%029d", number));
        if (!light.isEmpty()) {
            MessageAccessor.putProperty(message, "INNER_MULTI_DISPATCH", light);
        }
        message.setQueueId(number % 3);
        message.setBody(("put " + number).getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 50412));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        kind.getMethod("setPropertiesString", String.class)
            .invoke(message, MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static void await(DefaultMessageStore store, long[] ends) throws Exception {
        Method max = DefaultMessageStore.class.getMethod("getMaxOffsetInQueue", String.class, int.class);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        for (int queue = 0; queue < ends.length; queue++) {
            while (((Number) max.invoke(store, "Order", queue)).longValue() < ends[queue] || store.dispatchBehindBytes() > 0) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("not dispatched: Order/" + queue + " ends before " + ends[queue]);
                }
                Thread.sleep(20);
            }
        }
    }
}
