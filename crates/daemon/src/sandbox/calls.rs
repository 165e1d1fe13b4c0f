//! The system calls that a process gives up, as a seccomp filter.
//!
//! A list of what is refused, not of what is allowed: a vendor's library and the C library under it may
//! call what they like next year, and must not fail for that. The list was made by going through all
//! calls up to [`LAST`]; newer ones do not exist for the process, so that none is allowed unseen.
//! Refused calls fail with `EPERM`, and nobody is killed: libraries try things and do without.
//!
//! Not here: who gets which list (`mod.rs`).

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// `mseal`, the last of Linux 6.10. Numbers above it are newer calls, or on x86-64 those of the x32
/// interface, which would be a way around every number below.
const LAST: i64 = 462;

/// Nobody in this service needs these, on any device: other processes' memory, the kernel's own state,
/// mounts and namespaces, and interfaces with a record of holes.
const GRAVE: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    // Does by its ring what this filter refuses.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];
#[cfg(target_arch = "x86_64")]
const GRAVE_HERE: &[i64] = &[
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
];
#[cfg(not(target_arch = "x86_64"))]
const GRAVE_HERE: &[i64] = &[];

/// The same number everywhere; `libc` does not have it for every architecture.
const FCHMODAT2: i64 = 452;

/// What takes a process beyond itself: addresses on a network or in the file system, programs, other
/// users' rights, and objects that all processes of a user share. Connections that exist go on.
const OUTSIDE: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_socket,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
    libc::SYS_ioprio_set,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_mq_notify,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmget,
    // Landlock has no say in these, and `truncate` only since its third version.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
    libc::SYS_truncate,
];
#[cfg(target_arch = "x86_64")]
const OUTSIDE_HERE: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_fork,
    libc::SYS_lchown,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const OUTSIDE_HERE: &[i64] = &[];

/// What changes a file system by a path. Only for a process that writes no file at all, where
/// Landlock cannot forbid it.
const WRITES: &[i64] = &[
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_renameat2,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
];
#[cfg(target_arch = "x86_64")]
const WRITES_HERE: &[i64] = &[
    libc::SYS_creat,
    libc::SYS_futimesat,
    libc::SYS_link,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_symlink,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
];
#[cfg(target_arch = "aarch64")]
const WRITES_HERE: &[i64] = &[38]; // `renameat`, which `libc` does not have here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const WRITES_HERE: &[i64] = &[];

/// What a process gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    /// Programs, new connections, other processes: see [`OUTSIDE`].
    pub(super) outside: bool,
    /// Every file that is not open yet, for writing.
    pub(super) writes: bool,
}

/// Puts the filter on all threads of this process. There is no way back.
pub(super) fn refuse(refused: Refused) -> io::Result<()> {
    install(&program(refused).map_err(io::Error::other)?)
}

fn program(refused: Refused) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut always = |numbers: &[i64]| rules.extend(numbers.iter().map(|n| (*n, Vec::new())));
    always(GRAVE);
    always(GRAVE_HERE);
    // Arguments of these are in memory, where a filter cannot look; the C library falls back on their
    // older forms.
    let mut absent = Vec::new();
    if refused.outside {
        always(OUTSIDE);
        always(OUTSIDE_HERE);
        absent.push(libc::SYS_clone3);
    }
    if refused.writes {
        always(WRITES);
        always(WRITES_HERE);
        absent.push(libc::SYS_openat2);
    }
    if refused.outside {
        rules.extend(outside_by_arguments()?);
    }
    if refused.writes {
        rules.insert(libc::SYS_openat, opens_to_write(2)?);
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_open, opens_to_write(1)?);
    }
    // What types into the terminal that the service was started from.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX];
    let typing = typing.map(|request| rule(&[when(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(
        libc::SYS_ioctl,
        typing.into_iter().collect::<Result<_, _>>()?,
    );
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?;
    let mut program = unknown(&absent);
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// Calls that are refused for others and allowed for the process itself.
fn outside_by_arguments() -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::BackendError> {
    use SeccompCmpOp::{MaskedEq, Ne};
    let pid = u64::from(std::process::id());
    let thread = libc::CLONE_THREAD as u64;
    let not_us = || rule(&[when(0, Ne, pid)?]);
    let not_self = |argument| rule(&[when(argument, Ne, 0)?]);
    Ok(vec![
        // A new process rather than a thread.
        (
            libc::SYS_clone,
            vec![rule(&[when(0, MaskedEq(thread), 0)?])?],
        ),
        // `abort` sends a signal, too.
        (libc::SYS_kill, vec![not_us()?]),
        (libc::SYS_tgkill, vec![not_us()?]),
        (libc::SYS_rt_sigqueueinfo, vec![not_us()?]),
        (libc::SYS_rt_tgsigqueueinfo, vec![not_us()?]),
        (libc::SYS_prlimit64, vec![not_self(0)?]),
        (libc::SYS_setpriority, vec![not_self(0)?, not_self(1)?]),
    ])
}

/// `open` and `openat`, whose flags are the argument of this number.
fn opens_to_write(flags: u8) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    use SeccompCmpOp::MaskedEq;
    let has = |flag: i32| rule(&[when(flags, MaskedEq(flag as u64), flag as u64)?]);
    [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC]
        .into_iter()
        .map(has)
        .collect()
}

fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.to_vec())
}

/// A condition on the lower half of an argument: all that is compared here are 32-bit numbers.
fn when(
    argument: u8,
    op: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

/// The beginning of a filter: what is newer than [`LAST`], or in `absent`, is not there (`ENOSYS`),
/// which every library expects of a new call.
fn unknown(absent: &[i64]) -> BpfProgram {
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (jump, load) = (libc::BPF_JMP | libc::BPF_K, libc::BPF_LD | libc::BPF_W);
    let answer = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let returns = instruction(libc::BPF_RET | libc::BPF_K, 0, 0, answer);
    // The number of the call is the first thing that a filter is shown.
    let mut program = vec![instruction(load | libc::BPF_ABS, 0, 0, 0)];
    program.push(instruction(jump | libc::BPF_JGT, 0, 1, LAST as u32));
    program.push(returns.clone());
    for call in absent {
        program.push(instruction(jump | libc::BPF_JEQ, 0, 1, *call as u32));
        program.push(returns.clone());
    }
    program
}

/// `seccompiler` would install it, but without `SPEC_ALLOW`: before Linux 5.16 a filter switches
/// speculation off for the process, which slows down every program that the device host runs. The
/// filter keeps nothing secret from code in its own process, so nothing is lost.
#[expect(
    unsafe_code,
    reason = "a system call that no crate wraps with this flag"
)]
fn install(program: &BpfProgram) -> io::Result<()> {
    #[repr(C)]
    struct Program {
        len: u16,
        filter: *const sock_filter,
    }
    rustix::thread::set_no_new_privs(true)?;
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = program.as_ptr();
    let argument = Program { len, filter };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: `argument` describes `len` instructions that live until the call returns; the kernel
    // copies and checks them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const argument,
        )
    };
    match result {
        0 => Ok(()),
        thread if thread > 0 => Err(io::Error::other(format!(
            "thread {thread} has a filter of its own"
        ))),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_makes_a_filter_that_the_kernel_takes() {
        for (outside, writes) in [(false, false), (true, false), (true, true)] {
            let program = program(Refused { outside, writes }).expect("well formed");
            // BPF_MAXINSNS
            assert!(program.len() < 4096, "{}", program.len());
        }
    }

    #[test]
    fn no_listed_call_is_beyond_the_last_one() {
        let lists = [
            GRAVE,
            GRAVE_HERE,
            OUTSIDE,
            OUTSIDE_HERE,
            WRITES,
            WRITES_HERE,
        ];
        for call in lists.concat() {
            assert!((0..=LAST).contains(&call), "{call}");
        }
    }
}
