//! The password of a URL, and the encryption that it asks for.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use testkit::postgres::{Durability, TestCluster};
use testkit::run;

use crate::postgres::{PostgresDatabase, execute, is_true};
use crate::registry::database::Database;
use crate::registry::deployment::{Asked, MemoryServer, refused, serving};

/// REG-01
pub fn reg_01_a_password_is_in_no_log_at_any_level() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut database = PostgresDatabase::on_own_server().await;
        let (url, role) = (database.url_of_user("app").await, database.role("app"));
        database.execute(&format!("ALTER ROLE {role} PASSWORD 's3cret'")).await;
        let rules = database.cluster().folder().join("data/pg_hba.conf");
        let others = fs::read_to_string(&rules).unwrap();
        fs::write(&rules, format!("local all {role} scram-sha-256\n{others}")).unwrap();
        database.execute("SELECT pg_reload_conf()").await;
        let error = refused(&format!("{url}&password=0therS3cret"));
        assert!(error.contains("password authentication failed"), "{error}");
        assert!(!error.contains("0therS3cret"), "{error}");
        let mut command = serving(&format!("{url}&password=s3cret"));
        command.env("RATELIMITER_LOG__LEVEL", "trace");
        let server = MemoryServer::start_as(command, folder.path());
        let (status, body) = server.put("k", 7).await;
        assert_eq!(status, 200, "{body}");
        let (_, metrics) = server.get("/metrics").await;
        let log = server.stop();
        assert!(log.contains(&format!("registry=postgresql://{role}@")), "{log}");
        assert!(!log.contains("s3cret") && !body.contains("s3cret") && !metrics.contains("s3cret"));
    });
}

/// REG-01: `sslmode` and `sslrootcert` are the driver's.
pub fn reg_01_the_connection_is_encrypted_as_the_url_says() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = TestCluster::start(Durability::ServerCrash);
        let names = ["127.0.0.1".to_owned()];
        let [trusted, other] =
            [(); 2].map(|()| rcgen::generate_simple_self_signed(names.clone()).unwrap());
        let owner = fs::metadata(cluster.folder()).unwrap();
        for (name, text) in
            [("cert.pem", trusted.cert.pem()), ("key.pem", trusted.signing_key.serialize_pem())]
        {
            let path = cluster.folder().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        let place = cluster.folder().display().to_string();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for setting in [
            "listen_addresses = '127.0.0.1'".to_owned(),
            format!("port = {port}"),
            "ssl = on".to_owned(),
            format!("ssl_cert_file = '{place}/cert.pem'"),
            format!("ssl_key_file = '{place}/key.pem'"),
        ] {
            execute(&cluster.url(), &format!("ALTER SYSTEM SET {setting}")).await;
        }
        cluster.stop();
        cluster.start_again();
        let url = |root: &str| {
            format!(
                "postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert={root}&application_name=tls"
            )
        };
        let roots = [("trusted.pem", &trusted), ("other.pem", &other)].map(|(name, certified)| {
            let path = folder.path().join(name);
            fs::write(&path, certified.cert.pem()).unwrap();
            path.display().to_string()
        });
        let error = refused(&url(&roots[1]));
        assert!(error.contains("certificate"), "{error}");
        let server = MemoryServer::start(&url(&roots[0]), folder.path());
        assert_eq!(server.put("k", 7).await.0, 200);
        let is_encrypted = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'tls'";
        assert!(is_true(&format!("{}&port={port}", cluster.url()), is_encrypted).await);
    });
}
