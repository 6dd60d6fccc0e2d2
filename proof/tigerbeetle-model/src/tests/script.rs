//! Scripts for the model: a line is a request, `;` separates events, `+` links them.
//!
//! `credit ID ACCOUNT AMOUNT` and `debit …` are posted, `cover …` is a balancing credit of the operator, `hold ID ACCOUNT AMOUNT [TIMEOUTs]` and
//! `close ID ACCOUNT [TIMEOUTs]` are pending, `void ID PENDING`, `post ID PENDING [AMOUNT]`,
//! `create ACCOUNT`, `balance ACCOUNT`, `at SECONDS.TENTHSs`. Account `A` exists, and so does the operator.

use std::fmt::Write;
use std::num::{NonZeroU16, NonZeroU32};

use expect_test::Expect;

use crate::Model;
use ratelimiter_tigerbeetle::ledger::{
    AccountId, Action, Movement, NewAccount, PostAmount, Timestamp, Transfer, TransferId, UserData,
    WorkItem,
};

const OPERATOR: u128 = 1_000;

pub(super) fn check(script: &str, expect: &Expect) {
    let mut model = Model::default();
    let mut now = Timestamp::from_unix_nanos(1);
    model.create_accounts(now, &[operator(), limited_account(account_number("A"))]);
    let mut output = String::new();
    for line in script.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["at", seconds] => {
                let (whole, tenths) = seconds.trim_end_matches('s').split_once('.').unwrap();
                let tenths = [whole, tenths].concat().parse::<u64>().unwrap();
                now = Timestamp::from_unix_nanos(tenths * 100_000_000);
                format!("{} expired", model.expire(now))
            }
            ["create", name] => {
                let account = limited_account(account_number(name));
                format!("{:?}", model.create_accounts(now, &[account])[0].status)
            }
            ["balance", name] => {
                let row = model.account(account_id(account_number(name))).unwrap();
                let balances = row.balances;
                let closed = if row.closed { ", closed" } else { "" };
                format!(
                    "{} + {} pending of {}{closed}",
                    balances.debits_posted, balances.debits_pending, balances.credits_posted
                )
            }
            _ => {
                let results = model.create_transfers(now, &item(line));
                let statuses: Vec<String> =
                    results.iter().map(|result| format!("{:?}", result.status)).collect();
                statuses.join(", ")
            }
        };
        writeln!(output, "{line} -> {answer}").unwrap();
    }
    expect.assert_eq(&output);
}

fn item(line: &str) -> WorkItem {
    let mut item = WorkItem::new();
    for chain in line.split(';') {
        item.push_chain(chain.split('+').map(transfer));
    }
    item
}

fn transfer(words: &str) -> Transfer {
    let words: Vec<&str> = words.split_whitespace().collect();
    let number = |word: &str| word.parse::<u128>().unwrap();
    match words[..] {
        ["credit", id, account, amount] => {
            credit(number(id), account_number(account), number(amount))
        }
        ["cover", id, account, amount] => {
            let action = Action::BalancingCredit(movement(account_number(account), number(amount)));
            Transfer { action, ..hold(number(id), 1, 0) }
        }
        ["debit", id, account, amount] => {
            let action = Action::Posted(movement(account_number(account), number(amount)));
            Transfer { action, ..hold(number(id), 1, 0) }
        }
        ["hold", id, account, amount] => hold(number(id), account_number(account), number(amount)),
        ["hold", id, account, amount, timeout] => {
            let hold = hold(number(id), account_number(account), number(amount));
            Transfer { action: with_timeout(hold.action, seconds(timeout)), ..hold }
        }
        ["close", id, account] => close(number(id), account_number(account)),
        ["close", id, account, timeout] => {
            let close = close(number(id), account_number(account));
            Transfer { action: with_timeout(close.action, seconds(timeout)), ..close }
        }
        ["void", id, pending] => {
            let action = Action::VoidPending { pending: transfer_id(number(pending)) };
            Transfer { action, ..hold(number(id), 1, 0) }
        }
        ["post", id, pending] => post(number(id), number(pending), PostAmount::Full),
        ["post", id, pending, amount] => {
            post(number(id), number(pending), PostAmount::Exactly(number(amount)))
        }
        _ => panic!("not an event: {words:?}"),
    }
}

fn seconds(word: &str) -> u32 {
    word.trim_end_matches('s').parse().unwrap()
}

fn account_number(name: &str) -> u128 {
    u128::from(name.as_bytes()[0] - b'A' + 1)
}

fn account_id(number: u128) -> AccountId {
    AccountId::new(number).unwrap()
}

pub(super) fn transfer_id(number: u128) -> TransferId {
    TransferId::new(number).unwrap()
}

pub(super) fn operator() -> NewAccount {
    NewAccount { debits_must_not_exceed_credits: false, ..limited_account(OPERATOR) }
}

pub(super) fn limited_account(number: u128) -> NewAccount {
    NewAccount {
        id: account_id(number),
        code: NonZeroU16::MIN,
        debits_must_not_exceed_credits: true,
        user_data: UserData::default(),
    }
}

pub(super) fn credit(id: u128, account: u128, amount: u128) -> Transfer {
    let Movement { debit, credit, .. } = movement(account, amount);
    let movement = Movement { debit: credit, credit: debit, ..movement(account, amount) };
    Transfer { action: Action::Posted(movement), ..hold(id, account, amount) }
}

pub(super) fn hold(id: u128, account: u128, amount: u128) -> Transfer {
    let action = Action::Pending {
        movement: movement(account, amount),
        timeout_seconds: None,
        closes_debit_account: false,
    };
    Transfer { id: transfer_id(id), action, user_data: UserData::default() }
}

fn close(id: u128, account: u128) -> Transfer {
    let action = Action::Pending {
        movement: movement(account, 0),
        timeout_seconds: None,
        closes_debit_account: true,
    };
    Transfer { action, ..hold(id, account, 0) }
}

fn post(id: u128, pending: u128, amount: PostAmount) -> Transfer {
    let action = Action::PostPending { pending: transfer_id(pending), amount };
    Transfer { action, ..hold(id, 1, 0) }
}

fn movement(account: u128, amount: u128) -> Movement {
    Movement {
        debit: account_id(account),
        credit: account_id(OPERATOR),
        amount,
        code: NonZeroU16::MIN,
    }
}

pub(super) fn with_timeout(action: Action, seconds: u32) -> Action {
    let Action::Pending { movement, closes_debit_account, .. } = action else {
        panic!("{action:?} has no timeout");
    };
    let timeout_seconds = NonZeroU32::new(seconds);
    Action::Pending { movement, timeout_seconds, closes_debit_account }
}
