import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Reads many stores in one JVM: every line of stdin is a request, every line of stdout a result.
 *
 * <pre>NUMBER TAB STORE [TAB key=value]…   →   NUMBER TAB {the JSON object of Oracle}</pre>
 *
 * Up to four stores are open at a time, and results are printed when they are ready. A request must have shutdown=true,
 * otherwise the threads of the store continue. A System.exit of RocketMQ ends the server without a result: the caller
 * has to repeat the request in a separate JVM. The server ends at the end of stdin.
 */
public final class OracleServer {
    private static final int AT_A_TIME = 4;

    private OracleServer() {
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        PrintStream out = System.out;
        System.setOut(System.err); // stdout is only for results
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ExecutorService askers = Executors.newFixedThreadPool(AT_A_TIME);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            askers.execute(() -> {
                String answer = new Oracle(Arrays.copyOfRange(words, 1, words.length)).ask();
                synchronized (out) {
                    out.println(words[0] + "\t" + answer);
                    out.flush();
                }
            });
        }
        askers.shutdown();
        askers.awaitTermination(60, TimeUnit.SECONDS);
        Runtime.getRuntime().halt(0); // not exit: no hook may touch a store any longer
    }
}
