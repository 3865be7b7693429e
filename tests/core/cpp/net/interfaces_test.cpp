// What the system tells of network interfaces.
#include "net/interfaces.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace sparsewire;

TEST_CASE("loopback is among the interfaces, with its address, its MTU and no speed") {
  const auto found = net::interfaces();
  const auto loopback = std::ranges::find(found, "lo", &net::Interface::name);
  REQUIRE(loopback != found.end());
  CHECK(std::ranges::find(loopback->addresses, "127.0.0.1") != loopback->addresses.end());
  CHECK(loopback->mtu.value_or(0) >= 1280);
  CHECK_FALSE(loopback->speed_mbit);
}

TEST_CASE("each interface is told once") {
  const auto found = net::interfaces();
  for (const net::Interface& each : found) {
    CHECK(std::ranges::count(found, each.name, &net::Interface::name) == 1);
  }
}
