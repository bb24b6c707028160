import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

/**
 * The objects that a broker fills from its broker.conf (BrokerStartup, and MessageStorePluginContext for the tiered
 * store). Only reflection, so that it runs with the classes of every release. Each line of output begins with "= ":
 * everything else is logging.
 *
 * "describe": one line per setter: class, key, type, default in Base64, and the constants of an enum that it takes as
 * text; at the end "trim" and whether a text is trimmed.
 * "read": one broker.conf in Base64 per line of standard input. The answer is a line "set CLASS KEY=VALUE" in Base64
 * for each value that differs from its default after Properties#load and MixAll#properties2Object, and then "end", with
 * the message of load if it throws.
 * "start": the path of one broker.conf per line of standard input. The answer is a line "get CLASS KEY=VALUE" in Base64
 * for each setting of the broker that BrokerStartup makes with -c and this file (before 5.0.0, it also loads its
 * store), and then "end". The value is that of the getter: the broker asks for no other.
 */
public class Settings {
    private static final String[] CLASSES = {
        "org.apache.rocketmq.common.BrokerConfig", "org.apache.rocketmq.remoting.netty.NettyServerConfig",
        "org.apache.rocketmq.remoting.netty.NettyClientConfig", "org.apache.rocketmq.store.config.MessageStoreConfig",
        "org.apache.rocketmq.auth.config.AuthConfig", "org.apache.rocketmq.tieredstore.common.TieredMessageStoreConfig",
        "org.apache.rocketmq.tieredstore.MessageStoreConfig"};

    private static PrintStream out;
    private static Method fill;

    public static void main(String[] args) throws Exception {
        out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        fill = Class.forName("org.apache.rocketmq.common.MixAll")
            .getMethod("properties2Object", Properties.class, Object.class);
        if (args[0].equals("describe")) {
            describe();
        } else if (args[0].equals("start")) {
            start();
        } else {
            read();
        }
        out.flush();
        System.exit(0);
    }

    private static List<Object> objects() throws Exception {
        List<Object> made = new ArrayList<>();
        for (String name : CLASSES) {
            try {
                made.add(Class.forName(name).getConstructor().newInstance());
            } catch (ClassNotFoundException older) {
                continue;
            }
        }
        made.get(1).getClass().getMethod("setListenPort", int.class).invoke(made.get(1), 10911);
        return made;
    }

    private static void describe() throws Exception {
        for (Object filled : objects()) {
            for (Method method : filled.getClass().getMethods()) {
                if (isSetter(method)) {
                    String key = key(method);
                    String type = method.getParameterTypes()[0].getSimpleName();
                    Field field = field(filled, key);
                    boolean names = type.equals("String") && field.getType().isEnum();
                    Object[] constants = names ? field.getType().getEnumConstants() : new Object[0];
                    out.println(String.join("\t", "= " + filled.getClass().getName(), key, type,
                        base64(String.valueOf(value(filled, key))),
                        String.join(",", Arrays.stream(constants).map(String::valueOf).toArray(String[]::new))));
                }
            }
        }
        Properties blank = new Properties();
        blank.setProperty("brokerName", "x ");
        Object broker = objects().get(0);
        fill.invoke(null, blank, broker);
        out.println("= trim\t" + value(broker, "brokerName").equals("x"));
    }

    private static boolean isSetter(Method method) {
        return method.getName().startsWith("set") && method.getParameterTypes().length > 0;
    }

    private static String key(Method method) {
        return method.getName().substring(3, 4).toLowerCase() + method.getName().substring(4);
    }

    /** The field of a setting: a few have a name of their own (setInBrokerContainer sets isInBrokerContainer). */
    private static Field field(Object filled, String key) {
        String other = "is" + key.substring(0, 1).toUpperCase() + key.substring(1);
        for (String name : new String[] {key, other}) {
            for (Class<?> in = filled.getClass(); in != null; in = in.getSuperclass()) {
                try {
                    Field field = in.getDeclaredField(name);
                    field.setAccessible(true);
                    return field;
                } catch (NoSuchFieldException inherited) {
                    continue;
                }
            }
        }
        throw new IllegalStateException("no field of " + key);
    }

    private static Object value(Object filled, String key) throws Exception {
        return field(filled, key).get(filled);
    }

    private static Map<String, String> values(List<Object> filled) throws Exception {
        Map<String, String> values = new TreeMap<>();
        for (Object one : filled) {
            for (Method method : one.getClass().getMethods()) {
                if (isSetter(method)) {
                    values.put(one.getClass().getName() + " " + key(method), String.valueOf(value(one, key(method))));
                }
            }
        }
        return values;
    }

    private static void read() throws Exception {
        Map<String, String> defaults = values(objects());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Properties properties = new Properties();
            String failed = "";
            try {
                properties.load(new ByteArrayInputStream(Base64.getDecoder().decode(line)));
                List<Object> filled = objects();
                for (Object one : filled) {
                    fill.invoke(null, properties, one);
                }
                for (Map.Entry<String, String> now : values(filled).entrySet()) {
                    if (!now.getValue().equals(defaults.get(now.getKey()))) {
                        out.println("= set " + base64(now.getKey() + "=" + now.getValue()));
                    }
                }
            } catch (IllegalArgumentException refused) {
                failed = " " + refused.getMessage();
            }
            out.println("= end" + failed);
        }
    }

    private static void start() throws Exception {
        Class<?> startup = Class.forName("org.apache.rocketmq.broker.BrokerStartup");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Object controller = controller(startup, line.split("\t")); // the words of a command line
            for (String part : new String[] {"Broker", "NettyServer", "NettyClient", "MessageStore", "Auth"}) {
                Object filled;
                try {
                    filled = controller.getClass().getMethod("get" + part + "Config").invoke(controller);
                } catch (NoSuchMethodException older) {
                    continue;
                }
                for (Method method : filled.getClass().getMethods()) {
                    if (isSetter(method)) {
                        String value = String.valueOf(got(filled, key(method)));
                        out.println("= get " + base64(filled.getClass().getName() + " " + key(method) + "=" + value));
                    }
                }
            }
            out.println("= end");
            out.flush();
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Object controller(Class<?> startup, String[] words) throws Exception {
        try {
            Object context = startup.getMethod("parseCmdLine", String[].class).invoke(null, (Object) words);
            return startup.getMethod("buildBrokerController", context.getClass()).invoke(null, context);
        } catch (NoSuchMethodException older) {
            try {
                return startup.getMethod("buildBrokerController", String[].class).invoke(null, (Object) words);
            } catch (NoSuchMethodException old) {
                return startup.getMethod("createBrokerController", String[].class).invoke(null, (Object) words);
            }
        }
    }

    private static Object got(Object filled, String key) throws Exception {
        String name = key.substring(0, 1).toUpperCase() + key.substring(1);
        for (String getter : new String[] {"get" + name, "is" + name, "get" + key, "is" + key, key}) {
            try {
                return filled.getClass().getMethod(getter).invoke(filled);
            } catch (NoSuchMethodException other) {
                continue;
            }
        }
        return value(filled, key);
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
