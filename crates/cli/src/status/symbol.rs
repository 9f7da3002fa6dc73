//! Lookup of an exported symbol in a library that is loaded in another process.
//!
//! All that the loader needs for this is read from the process's memory. The file may have been
//! deleted, replaced by a newer one, or be in another mount namespace.

use std::io::{self, ErrorKind};

use object::Endianness;
use object::elf::{
    DT_GNU_HASH, DT_STRTAB, DT_SYMTAB, Dyn64, DynamicTag, FileHeader64, GnuHashHeader, PT_DYNAMIC,
    PT_LOAD, ProgramHeader64, Sym64,
};
use object::pod::{Pod, from_bytes};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Sym as _};
use uncork_posix::published::Memory;

/// Limits for symbols that share a hash bucket, and for entries of a table: bounds on what another
/// process may make us read.
const MAX_CHAIN: u64 = 1 << 16;
const MAX_ENTRIES: u64 = 256;

/// Returns the address of `name` in the library whose ELF header is at `start`.
pub(super) fn address(memory: &impl Memory, start: u64, name: &str) -> io::Result<u64> {
    let image = Image::at(memory, start)?;
    let found = image.find(name.as_bytes())?;
    found.ok_or_else(|| invalid("the library in that process does not publish its sockets"))
}

/// The tables of a loaded library, by their addresses.
struct Image<'a, M> {
    memory: &'a M,
    endian: Endianness,
    /// The offset that is added to the addresses in the file.
    bias: u64,
    symbols: u64,
    names: u64,
    hashes: u64,
}

impl<'a, M: Memory> Image<'a, M> {
    fn at(memory: &'a M, start: u64) -> io::Result<Self> {
        let header: FileHeader64<Endianness> = read(memory, start)?;
        let endian = header.endian().map_err(|error| invalid(&error.to_string()))?;
        let mut image = Self { memory, endian, bias: 0, symbols: 0, names: 0, hashes: 0 };
        let mut dynamic = None;
        let mut first = None;
        for index in 0..u64::from(header.e_phnum(endian)).min(MAX_ENTRIES) {
            let at = start.wrapping_add(header.e_phoff(endian));
            let segment: ProgramHeader64<Endianness> = image.entry(at, index)?;
            match segment.p_type(endian) {
                PT_LOAD => {
                    first.get_or_insert(
                        segment.p_vaddr(endian).wrapping_sub(segment.p_offset(endian)),
                    );
                }
                PT_DYNAMIC => dynamic = Some(segment.p_vaddr(endian)),
                _ => {}
            }
        }
        let (Some(first), Some(dynamic)) = (first, dynamic) else {
            return Err(invalid("the library in that process has no dynamic section"));
        };
        image.bias = start.wrapping_sub(first);
        image.tables(dynamic)?;
        Ok(image)
    }

    /// Reads the addresses of the tables from the dynamic section.
    fn tables(&mut self, dynamic: u64) -> io::Result<()> {
        for index in 0..MAX_ENTRIES {
            let entry: Dyn64<Endianness> = self.entry(self.bias.wrapping_add(dynamic), index)?;
            let value = entry.d_val(self.endian);
            // glibc's loader writes these back as addresses in the process; on machines where the
            // section is read-only they stay as they are in the file.
            let address = if value >= self.bias { value } else { self.bias.wrapping_add(value) };
            match entry.d_tag(self.endian) {
                DT_SYMTAB => self.symbols = address,
                DT_STRTAB => self.names = address,
                DT_GNU_HASH => self.hashes = address,
                DynamicTag(0) => break,
                _ => {}
            }
        }
        if [self.symbols, self.names, self.hashes].contains(&0) {
            return Err(invalid("the library in that process has no table of symbols"));
        }
        Ok(())
    }

    /// Looks a name up as the loader does, by the GNU hash table.
    fn find(&self, name: &[u8]) -> io::Result<Option<u64>> {
        let header: GnuHashHeader<Endianness> = read(self.memory, self.hashes)?;
        let buckets = header.bucket_count.get(self.endian);
        let base = header.symbol_base.get(self.endian);
        if buckets == 0 {
            return Ok(None);
        }
        let filter_bytes = u64::from(header.bloom_count.get(self.endian)) * 8;
        let bucket_table =
            self.hashes + size_of::<GnuHashHeader<Endianness>>() as u64 + filter_bytes;
        let chain_table = bucket_table + u64::from(buckets) * 4;
        let hash = gnu_hash(name);
        let first = self.word(bucket_table, u64::from(hash % buckets))?;
        if first < base {
            return Ok(None);
        }
        for index in u64::from(first)..u64::from(first) + MAX_CHAIN {
            let link = self.word(chain_table, index - u64::from(base))?;
            if link | 1 == hash | 1 {
                let symbol: Sym64<Endianness> = self.entry(self.symbols, index)?;
                if self.is_named(&symbol, name)? {
                    return Ok(Some(self.bias.wrapping_add(symbol.st_value(self.endian))));
                }
            }
            // The lowest bit marks the end of a chain.
            if link & 1 == 1 {
                break;
            }
        }
        Ok(None)
    }

    fn is_named(&self, symbol: &Sym64<Endianness>, name: &[u8]) -> io::Result<bool> {
        let at = self.names.wrapping_add(u64::from(symbol.st_name(self.endian)));
        let mut text = vec![0; name.len() + 1];
        self.memory.read(at, &mut text)?;
        Ok(text.split_last() == Some((&0, name)))
    }

    fn word(&self, table: u64, index: u64) -> io::Result<u32> {
        let word: object::U32<Endianness> = self.entry(table, index)?;
        Ok(word.get(self.endian))
    }

    fn entry<T: Pod>(&self, table: u64, index: u64) -> io::Result<T> {
        read(self.memory, table.wrapping_add(index.wrapping_mul(size_of::<T>() as u64)))
    }
}

fn read<T: Pod>(memory: &impl Memory, address: u64) -> io::Result<T> {
    let mut bytes = vec![0_u8; size_of::<T>()];
    memory.read(address, &mut bytes)?;
    let (value, _) = from_bytes::<T>(&bytes).map_err(|()| invalid("an ELF table is misplaced"))?;
    Ok(*value)
}

/// Computes the hash of DT_GNU_HASH: h * 33 + c from 5381.
fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
