//! What an instruction writes.

use iced_x86::{
    Decoder as X86Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};
use nix::libc::user_regs_struct;
use std::{collections::HashMap, fs::File, io, os::unix::fs::FileExt, rc::Rc};

/// Bytes that move between caches together.
const LINE: u64 = 64;
/// Bytes of an instruction at most.
const LONGEST: usize = 15;

/// The instruction at one address.
pub(super) struct Instruction {
    pub(super) is_syscall: bool,
    /// A read-modify-write that no other thread can interrupt.
    pub(super) is_rmw: bool,
    writes: Vec<UsedMemory>,
}

/// Reads the instructions of another process, each address once.
pub(super) struct Decoder {
    memory: File,
    seen: HashMap<u64, Rc<Instruction>>,
    factory: InstructionInfoFactory,
}

impl Decoder {
    pub(super) fn new(process: i32) -> io::Result<Self> {
        let memory = File::open(format!("/proc/{process}/mem"))?;
        Ok(Self { memory, seen: HashMap::new(), factory: InstructionInfoFactory::new() })
    }

    pub(super) fn at(&mut self, address: u64) -> io::Result<Rc<Instruction>> {
        if let Some(instruction) = self.seen.get(&address) {
            return Ok(Rc::clone(instruction));
        }
        let mut bytes = [0; LONGEST];
        // An instruction at the end of its mapping is followed by fewer bytes.
        let len = self.memory.read_at(&mut bytes, address)?;
        let instruction = Rc::new(self.decode(address, &bytes[..len]));
        self.seen.insert(address, Rc::clone(&instruction));
        Ok(instruction)
    }

    fn decode(&mut self, address: u64, bytes: &[u8]) -> Instruction {
        let instruction = X86Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let has_memory = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
        let is_write = |memory: &&UsedMemory| {
            matches!(
                memory.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        Instruction {
            is_syscall: instruction.mnemonic() == Mnemonic::Syscall,
            is_rmw: instruction.has_lock_prefix() || (instruction.mnemonic() == Mnemonic::Xchg && has_memory),
            writes: self.factory.info(&instruction).used_memory().iter().filter(is_write).copied().collect(),
        }
    }
}

impl Instruction {
    /// The lines that it writes with these registers, by number.
    pub(super) fn lines(&self, registers: &user_regs_struct) -> impl Iterator<Item = u64> {
        self.writes
            .iter()
            .filter_map(|memory| {
                let address = memory.virtual_address(0, |register, _, _| Some(value(registers, register)))?;
                let last = address.wrapping_add(memory.memory_size().size().max(1) as u64 - 1);
                Some(address / LINE..=last / LINE)
            })
            .flatten()
    }
}

/// The value of a register that takes part in an address. Segments but those of threads begin at 0.
fn value(registers: &user_regs_struct, register: Register) -> u64 {
    let whole = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        _ => 0,
    };
    if register.size() == 4 { u64::from(whole as u32) } else { whole }
}
