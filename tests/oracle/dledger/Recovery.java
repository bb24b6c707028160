import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.entry.DLedgerEntryType;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Lets the file store of DLedger 0.4 load and recover a group directory, and prints one line: begin index, end index,
 * end term, end of the data, end of the index. It changes what it opens.
 *
 * <pre>Recovery ROOT FILE_SIZE                    recovers ROOT/dledger-n0
 * Recovery ROOT FILE_SIZE append COUNT         appends as a leader, every fifth entry a NOOP
 * Recovery ROOT FILE_SIZE reset INDEX          drops the entries up to an index, as behind a snapshot</pre>
 *
 * Exit code: 0, 4 with an exception's text, or that of DLedger's own System.exit.
 */
public final class Recovery {
    public static void main(String[] arguments) {
        PrintStream out = System.out;
        System.setOut(System.err); // stdout is for the answer alone
        int code = 0;
        try {
            DLedgerConfig config = new DLedgerConfig();
            config.setStoreBaseDir(arguments[0]);
            config.setMappedFileSizeForEntryData(Integer.parseInt(arguments[1]));
            config.setGroup("g");
            config.setSelfId("n0");
            config.setPeers("n0-127.0.0.1:0");
            MemberState state = new MemberState(config);
            DLedgerMmapFileStore store = new DLedgerMmapFileStore(config, state);
            store.load();
            store.recover();
            if (arguments.length > 2) {
                change(store, state, arguments[2], Integer.parseInt(arguments[3]));
            }
            out.println(store.getLedgerBeforeBeginIndex() + 1 + " " + store.getLedgerEndIndex() + " " + store.getLedgerEndTerm()
                + " " + store.getDataFileList().getMaxWrotePosition() + " " + store.getIndexFileList().getMaxWrotePosition());
        } catch (Throwable e) {
            out.println(e);
            e.printStackTrace();
            code = 4;
        }
        out.flush();
        Runtime.getRuntime().halt(code);
    }

    private static void change(DLedgerMmapFileStore store, MemberState state, String how, int number) {
        if (how.equals("reset")) {
            store.reset(number, store.get((long) number).getTerm());
        } else {
            state.changeToLeader(state.currTerm());
            for (int i = 1; i <= number; i++) {
                boolean noop = i % 5 == 0;
                DLedgerEntry entry = new DLedgerEntry(noop ? DLedgerEntryType.NOOP : DLedgerEntryType.NORMAL);
                entry.setBody(noop ? new byte[0] : ("entry " + i).repeat(i % 40 + 1).getBytes(StandardCharsets.UTF_8));
                store.appendAsLeader(entry);
            }
        }
        store.flush();
    }
}
