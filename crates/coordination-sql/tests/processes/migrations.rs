//! Processes that start on an empty database at the same moment.

use std::io::BufRead;

use coordination::{NewOutboxMessage, Outbox, Payload, Topic};
use testkit::run;

use crate::child::{Role, say, stop};
use crate::on_provider;
use crate::place::{Keeper, Place, Provider};

const PROCESSES: usize = 4;
const ROUNDS: usize = 8;

/// Opens each place that stdin names, uses it, and says so.
pub async fn open_what_is_told() {
    for line in std::io::stdin().lock().lines() {
        let place = Place::parse(&line.unwrap());
        on_provider!(&place, enqueue);
        say("opened");
    }
}

async fn enqueue<P: Provider>(provider: P) {
    let message = NewOutboxMessage::new(Topic::new("started").unwrap(), Payload::empty());
    Outbox::enqueue(&provider, message).await.unwrap();
}

/// All of them can use the database, whoever made the tables.
pub fn at_once(fresh: fn() -> Keeper) {
    run(async {
        let mut processes: Vec<_> = (0..PROCESSES).map(|_| Role::Migrate.start(None)).collect();
        for _ in 0..ROUNDS {
            let keeper = fresh();
            let place = keeper.place.to_string();
            for process in &mut processes {
                process.write_line(&place);
            }
            for process in &mut processes {
                assert_eq!(process.read_line().as_deref(), Some("opened"));
            }
            let messages = on_provider!(&keeper.place, claim_all);
            assert_eq!(messages, PROCESSES);
        }
        for process in processes {
            stop(process);
        }
    });
}

async fn claim_all<P: Provider>(provider: P) -> usize {
    crate::claims::claim(&provider, 100).await.len()
}
