import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;

/**
 * Looks up messages by key, like QUERY_MESSAGE of a broker: queryMessage(topic, key, maxNum, begin, end) for every line
 * "TOPIC TAB KEY TAB BEGIN TAB END [TAB TYPE]" of a file. TYPE is for 5.4.0 (T: the key is a tag).
 */
final class Keys {
    private static final int MOST = 1 << 20; // maxMsgsNumBatch limits it further

    private Keys() {
    }

    /** Returns the commitlog offsets of the messages for each line as JSON, in the order of the response. */
    static String ask(DefaultMessageStore store, File file) throws Exception {
        List<String> answers = new ArrayList<>();
        for (String line : Files.readAllLines(file.toPath(), StandardCharsets.UTF_8)) {
            String[] words = line.split("\t", -1);
            answers.add(query(store, words[0], words[1], Long.parseLong(words[2]), Long.parseLong(words[3]), words.length > 4 ? words[4] : null));
        }
        return "[" + String.join(",", answers) + "]";
    }

    private static String query(DefaultMessageStore store, String topic, String key, long begin, long end, String type)
        throws Exception {
        QueryMessageResult result = type == null ? store.queryMessage(topic, key, MOST, begin, end)
            : (QueryMessageResult) store.getClass()
                .getMethod("queryMessage", String.class, String.class, int.class, long.class, long.class, String.class, String.class)
                .invoke(store, topic, key, MOST, begin, end, type, null);
        List<String> offsets = new ArrayList<>();
        try {
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                byte[] raw = new byte[buffer.remaining()];
                buffer.duplicate().get(raw);
                MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(raw), true, false);
                if (message == null) {
                    throw new IllegalStateException(topic + " " + key + ": a message that cannot be decoded");
                }
                if (!topic.equals(message.getTopic())) {
                    throw new IllegalStateException(topic + " " + key + ": a message of " + message.getTopic());
                }
                offsets.add(Long.toString(message.getCommitLogOffset()));
            }
        } finally {
            result.release();
        }
        return "[" + String.join(",", offsets) + "]";
    }
}
