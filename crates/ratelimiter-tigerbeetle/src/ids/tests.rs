use expect_test::{Expect, expect};

use super::*;

/// The example of the ULID specification: 2016-07-30T23:54:10.259Z.
const LEASE: LeaseId = LeaseId::from_u128(0x0156_3E3A_B5D3_D676_4C61_EFB9_9302_BD5B);
const KEY: &str = "global:llm:openai:gpt-4.1:rpm";

fn key(text: &str) -> LimitKey {
    LimitKey::new(text).unwrap()
}

fn check(id: u128, expect: &Expect) {
    expect.assert_eq(&format!("{id:032x}"));
}

#[test]
fn a_lease_reads_as_its_canonical_ulid() {
    assert_eq!(LEASE.to_string(), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    assert_eq!(LEASE.timestamp_ms(), 1_469_922_850_259);
}

/// TB-01
#[test]
fn tb_01_a_transfer_id_is_48_bits_of_time_and_80_bits_of_the_labels_hash() {
    let label = format!("xfer:reserve:01ARZ3NDEKTSV4RRFFQ69G5FAV:{KEY}");
    let digest = Sha256::digest(&label);
    let id = transfer(TransferRole::Reserve, LEASE, &key(KEY)).get();

    let bytes = id.to_be_bytes();
    assert_eq!(bytes[..6], [0x01, 0x56, 0x3E, 0x3A, 0xB5, 0xD3], "the lease's time comes first");
    assert_eq!(bytes[6..], digest[..10], "then the first 80 bits of the hash, in their order");
}

/// TB-01: these values are on disk in every cluster; a change of one of them loses every lease.
#[test]
fn tb_01_the_layout_of_every_role_is_fixed() {
    check(
        transfer(TransferRole::Reserve, LEASE, &key(KEY)).get(),
        &expect!["01563e3ab5d3c071aaa8b2671d1dbc83"],
    );
    check(
        transfer(TransferRole::Void, LEASE, &key(KEY)).get(),
        &expect!["01563e3ab5d347f91253d726f4163d48"],
    );
    check(
        transfer(TransferRole::Rereserve, LEASE, &key(KEY)).get(),
        &expect!["01563e3ab5d3bd407de3ad6aa72853f8"],
    );
    check(
        transfer(TransferRole::Debt, LEASE, &key(KEY)).get(),
        &expect!["01563e3ab5d375a9ba75e9dec13045d7"],
    );
}

/// TB-17: these are on disk too.
#[test]
fn tb_17_every_attempt_has_ids_of_its_own_and_all_share_one_gate() {
    check(gate(LEASE).get(), &expect!["01563e3ab5d3fa1da3bb69705744e7df"]);
    let at = |attempt| reservation_at(NonZeroU32::new(attempt).unwrap(), LEASE, &key(KEY));
    check(at(1).get(), &expect!["01563e3ab5d3fa8fccc08121f657f1f4"]);
    check(at(2).get(), &expect!["01563e3ab5d30a446835e8c53f0036a4"]);
    let digest = Sha256::digest(format!("xfer:reserve:{LEASE}:1:{KEY}"));
    assert_eq!(at(1).get().to_be_bytes()[6..], digest[..10]);
}

/// TB-01
#[test]
fn tb_01_a_later_lease_has_greater_transfer_ids_whatever_the_hash() {
    let later = LeaseId::from_u128(LEASE.as_u128() + (1 << HASH_BITS));
    for text in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        assert!(
            transfer(TransferRole::Reserve, LEASE, &key(text))
                < transfer(TransferRole::Reserve, later, &key(text))
        );
    }
}

#[test]
fn account_ids_are_fixed() {
    check(operator_account().get(), &expect!["ee06f35fb94212edc7e42a11203bfca8"]);
    check(marker_account().get(), &expect!["bb3f32c5284daf249985fc5a5693b7ba"]);
    check(probe_account(7).get(), &expect!["24a3f989f4e7dcc34eab5ab9e4f77017"]);
    check(limit_account(&key(KEY)).get(), &expect!["657d3d7b12c080f2bc15c732303ccb0c"]);
    check(debt_account(&key(KEY)).get(), &expect!["c0d160dcd200033f1e42b8abfbff9636"]);
}

#[test]
fn an_account_id_is_the_first_16_bytes_little_endian() {
    let digest = Sha256::digest("acct:operator");
    assert_eq!(operator_account().get().to_le_bytes(), digest[..16]);
}

#[test]
fn the_two_refused_ids_are_never_made() {
    for (id, nearest) in
        [(0, 1), (1, 1), (u128::MAX - 1, u128::MAX - 1), (u128::MAX, u128::MAX - 1)]
    {
        assert_eq!(AccountId::nearest(id).get(), nearest);
        assert_eq!(TransferId::nearest(id).get(), nearest);
    }
}

/// TB-19: no key's account is another key's period, however the keys look.
#[test]
fn tb_19_accounts_of_periods_are_of_one_key_and_one_end() {
    let at = Timestamp::from_unix_ms;
    let accounts = [
        period_account(&key("k"), at(1)),
        period_account(&key("k"), at(12)),
        period_account(&key("2:k"), at(1)),
        period_end_account(&key("k")),
        period_end_account(&key("1:k")),
        limit_account(&key("1:k")),
        limit_account(&key("k:1")),
    ];
    let distinct: std::collections::HashSet<_> = accounts.iter().collect();
    assert_eq!(distinct.len(), accounts.len());
    // These are on disk in every cluster.
    check(
        period_account(&key(KEY), at(1_796_076_000_000)).get(),
        &expect!["75ca778a25eb8112d1e5fac7094328f3"],
    );
    check(period_end_account(&key(KEY)).get(), &expect!["8c327c32574bb9ec605ee99a64603765"]);
    check(
        announcement(&key(KEY), 1_796_076_000_000).get(),
        &expect!["01a22e78d3005d59d356382c1ef5a185"],
    );
}
