import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** An Iceberg REST catalog on 127.0.0.1 over a SQLite file: PORT FILE WAREHOUSE. */
public class IcebergRest {
  public static void main(String[] given) throws Exception {
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new org.apache.hadoop.conf.Configuration());
    catalog.initialize(
        "rest",
        Map.of(
            CatalogProperties.URI, "jdbc:sqlite:" + given[1],
            CatalogProperties.WAREHOUSE_LOCATION, given[2],
            "jdbc.schema-version", "V1"));
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(given[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
