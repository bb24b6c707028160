import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;

/** Reads one queue like a consumer: each pull begins at the next offset of the previous response. */
final class Pulls {
    private Pulls() {
    }

    /** Returns the QUEUEOFFSETs of the messages as JSON, in the order of delivery, with `most` messages per pull. */
    static String of(DefaultMessageStore store, String topic, int queue, long from, int most) {
        List<String> offsets = new ArrayList<>();
        long next = Math.max(0, from);
        while (true) {
            GetMessageResult result = store.getMessage("__oracle", topic, queue, next, most, null);
            if (result == null) {
                break;
            }
            try {
                for (ByteBuffer buffer : result.getMessageBufferList()) {
                    byte[] raw = new byte[buffer.remaining()];
                    buffer.duplicate().get(raw);
                    MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(raw), true, false);
                    offsets.add(message == null ? "-1" : Long.toString(message.getQueueOffset()));
                }
            } finally {
                result.release();
            }
            if (result.getNextBeginOffset() <= next) {
                break;
            }
            next = result.getNextBeginOffset();
        }
        return "[" + String.join(",", offsets) + "]";
    }
}
