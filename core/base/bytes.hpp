// Bytes: a read-only stretch of memory that is either shared (and kept alive) or borrowed.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

namespace sparsewire {

class Bytes {
 public:
  Bytes() = default;

  static Bytes borrowed(std::span<const std::byte> view) { return Bytes(nullptr, view); }

  static Bytes shared(std::shared_ptr<const std::byte[]> owner, std::size_t size) {
    const std::byte* data = owner.get();
    return Bytes(std::move(owner), {data, size});
  }

  static Bytes copy_of(std::span<const std::byte> view) {
    if (view.empty()) return {};
    auto owner = allocate(view.size());
    std::memcpy(owner.get(), view.data(), view.size());
    return shared(std::move(owner), view.size());
  }

  static std::shared_ptr<std::byte[]> allocate(std::size_t size) {
    return std::make_shared_for_overwrite<std::byte[]>(size);
  }

  std::span<const std::byte> view() const { return view_; }
  const std::byte* data() const { return view_.data(); }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }

  // True if the memory belongs to another holder, which may take it back.
  bool is_borrowed() const { return !owner_ && !view_.empty(); }

  // A stretch of these bytes, which shares their memory.
  Bytes part(std::size_t first, std::size_t size) const {
    return Bytes(owner_, view_.subspan(first, size));
  }

  // The same content in memory that stays. A holder that outlives the lender must call this.
  Bytes owned() const { return is_borrowed() ? copy_of(view_) : *this; }

 private:
  Bytes(std::shared_ptr<const std::byte[]> owner, std::span<const std::byte> view)
      : owner_(std::move(owner)), view_(view) {}

  std::shared_ptr<const std::byte[]> owner_;
  std::span<const std::byte> view_;
};

}  // namespace sparsewire
