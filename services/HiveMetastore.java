import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.sql.SQLException;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TTransportFactory;

/** A Hive metastore on 127.0.0.1 over a Derby database: PORT FOLDER WAREHOUSE. */
public class HiveMetastore {
  public static void main(String[] given) throws Exception {
    HiveConf conf = new HiveConf();
    conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:" + given[1] + ";create=true");
    conf.set("javax.jdo.option.ConnectionDriverName", "org.apache.derby.iapi.jdbc.AutoloadedDriver");
    conf.set("hive.metastore.warehouse.dir", given[2]);
    conf.set("datanucleus.schema.autoCreateAll", "true");
    conf.set("datanucleus.connectionPoolingType", "NONE");
    conf.set("hive.metastore.schema.verification", "false");
    try {
      TxnDbUtil.prepDb(conf);
    } catch (SQLException error) {
      if (!"X0Y32".equals(error.getSQLState())) { // the tables are there
        throw error;
      }
    }
    HiveMetaStore.HMSHandler base = new HiveMetaStore.HMSHandler("tests", conf, false);
    IHMSHandler handler = HiveMetaStore.newRetryingHMSHandler(base, conf, true);
    InetSocketAddress place = new InetSocketAddress(InetAddress.getByName("127.0.0.1"), Integer.parseInt(given[0]));
    TThreadPoolServer.Args settings =
        new TThreadPoolServer.Args(new TServerSocket(place))
            .processor(new TSetIpAddressProcessor<IHMSHandler>(handler))
            .transportFactory(new TTransportFactory())
            .protocolFactory(new TBinaryProtocol.Factory());
    new TThreadPoolServer(settings).serve();
  }
}
