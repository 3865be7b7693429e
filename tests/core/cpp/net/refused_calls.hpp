// Has the kernel refuse a system call to one thread, as a host does that is short of something.
#pragma once

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace sparsewire::test {

// Calls act() in a thread of its own, where the system call of that number ends with `error`.
template <typename Act>
void with_refused(long number, int error, Act&& act) {
  int refused = -1;
  std::thread([&] {
    std::array<sock_filter, 4> rules{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    sock_fprog filter{rules.size(), rules.data()};
    refused = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (refused == 0) refused = ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    act();
  }).join();
  REQUIRE(refused == 0);
}

}  // namespace sparsewire::test
