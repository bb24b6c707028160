import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Runs the clean-up services of a loaded store without their schedule. One round is what a broker does every 10 s
 * (cleanResourceInterval): CleanCommitLogService, then CleanConsumeQueueService, which also deletes index files. The
 * log of a DLedger member is cleaned by CleanSpaceService, whose thread runs from the start on; that thread is ended,
 * and each round does its work once.
 */
final class CleanUp {
    private final DefaultMessageStore store;
    private final File root;
    private final TreeSet<String> before;

    /** Call this before the store is loaded: files that are deleted from now on are reported. */
    CleanUp(DefaultMessageStore store, File root) throws IOException {
        this.store = store;
        this.root = root;
        before = files();
    }

    /** Returns the paths of the files that each round deleted as JSON. */
    String run(int rounds, boolean manual) throws Exception {
        Object log = Oracle.field(DefaultMessageStore.class, store, "cleanCommitLogService");
        Object queues = queueService();
        Object space = spaceService();
        if (manual) {
            store.executeDeleteFilesManually();
        }
        List<String> answers = new ArrayList<>();
        for (int round = 0; round < rounds; round++) {
            invoke(log, "run");
            if (space != null) {
                invoke(space, "doWork");
            }
            invoke(queues, "run");
            TreeSet<String> after = files();
            before.removeAll(after);
            answers.add(before.stream().map(Oracle::quote).collect(Collectors.joining(",", "[", "]")));
            before.clear();
            before.addAll(after);
        }
        return "[" + String.join(",", answers) + "]";
    }

    /** Finds the service, which 5.2 and later keep in the ConsumeQueueStore. */
    private Object queueService() throws ReflectiveOperationException {
        try {
            return Oracle.field(DefaultMessageStore.class, store, "cleanConsumeQueueService");
        } catch (NoSuchFieldException e) {
            Object queueStore = store.getClass().getMethod("getQueueStore").invoke(store);
            return Oracle.field(queueStore.getClass(), queueStore, "cleanConsumeQueueService");
        }
    }

    private Object spaceService() throws ReflectiveOperationException {
        Object log = store.getCommitLog();
        if (!log.getClass().getSimpleName().equals("DLedgerCommitLog")) {
            return null;
        }
        Object files = Oracle.field(log.getClass(), log, "dLedgerFileStore");
        Object service = Oracle.field(files.getClass(), files, "cleanSpaceService");
        service.getClass().getMethod("shutdown").invoke(service);
        return service;
    }

    private static void invoke(Object service, String name) throws ReflectiveOperationException {
        Method method = service.getClass().getMethod(name);
        method.setAccessible(true);
        method.invoke(service);
    }

    private TreeSet<String> files() throws IOException {
        try (Stream<Path> all = Files.walk(root.toPath())) {
            return all.filter(path -> path.getFileName().toString().matches("\\d+") && Files.isRegularFile(path))
                .map(path -> root.toPath().relativize(path).toString()).collect(Collectors.toCollection(TreeSet::new));
        }
    }
}
