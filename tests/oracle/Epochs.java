import java.util.List;

/**
 * Reads epoch files with EpochFileCache (5.x). Arguments: file and end of the log of a replica, the same of its master.
 * Prints the replica's entries as EPOCH-START..END, and the offset up to which the replica takes both logs for equal.
 */
public class Epochs {
    public static void main(String[] args) throws Exception {
        Object replica = cache(args[0], args[1]);
        Object master = cache(args[2], args[3]);
        for (Object entry : (List<?>) call(replica, "getAllEntries"))
            System.out.println(call(entry, "getEpoch") + "-" + call(entry, "getStartOffset") + ".." + call(entry, "getEndOffset"));
        System.out.println(replica.getClass().getMethod("findConsistentPoint", replica.getClass()).invoke(replica, master));
    }

    private static Object cache(String file, String end) throws Exception {
        Class<?> type = Class.forName("org.apache.rocketmq.store.ha.autoswitch.EpochFileCache");
        Object cache = type.getConstructor(String.class).newInstance(file);
        if (!(Boolean) call(cache, "initCacheFromFile")) throw new IllegalArgumentException(file);
        type.getMethod("setLastEpochEntryEndOffset", long.class).invoke(cache, Long.parseLong(end));
        return cache;
    }

    private static Object call(Object target, String name) throws Exception {
        return target.getClass().getMethod(name).invoke(target);
    }
}
