import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.apache.rocketmq.common.MixAll;

/**
 * Reads texts as ConfigManager#load does: MixAll.file2String, then RemotingSerializable.fromJson. One text per line of
 * standard input: its file name, a tab, the bytes in Base64. The answer is one line per text: "true" if it was read.
 */
public class ConfigTexts {
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.remoting.protocol.body.", "org.apache.rocketmq.common.protocol.body.",
        "org.apache.rocketmq.store.schedule.", "org.apache.rocketmq.broker.schedule.",
        "org.apache.rocketmq.broker.offset."};

    public static void main(String[] args) throws Exception {
        Method fromJson = Class.forName("org.apache.rocketmq.remoting.protocol.RemotingSerializable")
            .getMethod("fromJson", String.class, Class.class);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        Path file = Files.createTempFile("config", ".json");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", 2);
            Files.write(file, Base64.getDecoder().decode(parts[1]));
            boolean read = false;
            try {
                read = fromJson.invoke(null, MixAll.file2String(file.toString()), classOf(parts[0])) != null;
            } catch (InvocationTargetException rejected) {
                read = false;
            }
            out.println("read " + read);
        }
        Files.delete(file);
    }

    private static Class<?> classOf(String name) throws ClassNotFoundException {
        String simple = name.equals("topics.json") ? "TopicConfigSerializeWrapper"
            : name.equals("delayOffset.json") ? "DelayOffsetSerializeWrapper" : "ConsumerOffsetManager";
        for (String in : PACKAGES) {
            try {
                return Class.forName(in + simple);
            } catch (ClassNotFoundException other) {
                continue;
            }
        }
        throw new ClassNotFoundException(simple);
    }
}
