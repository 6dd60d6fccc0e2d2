//! Gzip without compression, frame by frame, for answers that nobody asked to compress.

use hyper::body::Bytes;

use crate::payload::{Frame, Frames};

/// No name, no time, system unknown.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The most bytes of one stored block.
const BLOCK_BYTES_MAX: usize = 65_535;

/// Each frame as stored blocks, between gzip's header and its trailer.
pub(crate) struct Gzip {
    frames: Frames,
    crc: u32,
    bytes_count: u32,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Header,
    Blocks,
    Done,
}

impl Gzip {
    pub(crate) const fn new(frames: Frames) -> Self {
        Self { frames, crc: u32::MAX, bytes_count: 0, state: State::Header }
    }

    fn blocks(&mut self, bytes: &[u8]) -> Bytes {
        let mut blocks = Vec::with_capacity(bytes.len() + 5);
        for block in bytes.chunks(BLOCK_BYTES_MAX) {
            let length = u16::try_from(block.len()).expect("a block has a most length");
            blocks.push(0);
            blocks.extend(length.to_le_bytes());
            blocks.extend((!length).to_le_bytes());
            blocks.extend(block);
        }
        for byte in bytes {
            self.crc = crc32(self.crc, *byte);
            self.bytes_count = self.bytes_count.wrapping_add(1);
        }
        Bytes::from(blocks)
    }

    fn trailer(&self) -> Bytes {
        let last_block = [1, 0, 0, 0xff, 0xff];
        let ends = [!self.crc, self.bytes_count].map(u32::to_le_bytes);
        last_block.into_iter().chain(ends.into_iter().flatten()).collect()
    }
}

impl Iterator for Gzip {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        match self.state {
            State::Header => {
                self.state = State::Blocks;
                Some(Frame::without_tokens(Bytes::from_static(&HEADER)))
            }
            State::Blocks => match self.frames.next() {
                Some(Frame { bytes, tokens }) => Some(Frame { bytes: self.blocks(&bytes), tokens }),
                None => {
                    self.state = State::Done;
                    Some(Frame::without_tokens(self.trailer()))
                }
            },
            State::Done => None,
        }
    }
}

fn crc32(crc: u32, byte: u8) -> u32 {
    let shift = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    (0..8).fold(crc ^ u32::from(byte), shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_gzip() {
        let crc = b"123456789".iter().fold(u32::MAX, |crc, byte| crc32(crc, *byte));
        assert_eq!(!crc, 0xcbf4_3926);
    }

    #[test]
    fn a_frame_is_a_stored_block() {
        let frames = Box::new([Frame { bytes: Bytes::from("ab"), tokens: 1 }].into_iter());
        let frames = Gzip::new(frames).collect::<Vec<_>>();
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[1].bytes.as_ref(), [0, 2, 0, 0xfd, 0xff, b'a', b'b']);
        assert_eq!(frames[1].tokens, 1);
    }
}
