//! Brings the tables of a PostgreSQL schema up to date, or prints the SQL that would.
//!
//! ```sh
//! cargo run -p coordination-sql --example migrate -- postgresql://owner@db/billing billing_work
//! cargo run -p coordination-sql --example migrate -- --print billing_work 0   # from version 0 on
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the command line")]

use std::error::Error;
use std::process::ExitCode;

use coordination_sql::{NEWEST_MIGRATION, PostgresConfig, PostgresProvider, SchemaName};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--print", schema, found] => {
            let schema = SchemaName::new(schema)?;
            println!("{}", PostgresProvider::migration_sql(&schema, found.parse()?));
        }
        [url, schema] => {
            let schema = SchemaName::new(schema)?;
            let config = PostgresConfig { schema: schema.clone(), ..PostgresConfig::default() };
            PostgresProvider::migrate(url, config).await?;
            println!("schema {schema} is at version {NEWEST_MIGRATION}");
        }
        _ => return Err("migrate <url> <schema>, or --print <schema> <version found>".into()),
    }
    Ok(())
}
