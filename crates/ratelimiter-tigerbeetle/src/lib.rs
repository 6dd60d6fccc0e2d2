//! The limiter backend that keeps reservations as TigerBeetle pending transfers
