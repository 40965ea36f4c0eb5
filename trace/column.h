// Column: a list that its copies share until one of them is changed.
//
// In a job of 65,536 ranks, most do the same: their traces share one list of events and one of
// calls, and an analysis of all ranks reads each list once (identity()).
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::trace {

// Reads as a std::vector<T>. Copying takes no memory. Several threads may read lists that share
// elements, and change their own.
template <class T>
class Column {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;
  using iterator = const_iterator;

  Column() = default;  // empty
  Column(std::vector<T> elements)
      : elements_(std::make_shared<std::vector<T>>(std::move(elements))) {}

  operator const std::vector<T>&() const { return all(); }
  const_iterator begin() const { return all().begin(); }
  const_iterator end() const { return all().end(); }
  std::size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  const T& operator[](std::size_t i) const { return (*elements_)[i]; }
  const T& front() const { return all().front(); }
  const T& back() const { return all().back(); }
  const T* data() const { return all().data(); }

  // The elements, to change them: from now on no copy shares them. O(size) where one did, so take
  // it once for many changes.
  std::vector<T>& own() {
    if (elements_ == nullptr || elements_.use_count() > 1) [[unlikely]]
      take_own();
    return *elements_;
  }
  void push_back(T element) { own().push_back(std::move(element)); }
  void reserve(std::size_t size) { own().reserve(size); }
  void clear() { elements_.reset(); }

  // Which list it is: equal for copies that share it, as long as one of them lives. nullptr for one
  // that never had elements.
  const void* identity() const { return elements_.get(); }
  // Whether a copy shares it now.
  bool is_shared() const { return elements_.use_count() > 1; }

 private:
  const std::vector<T>& all() const { return elements_ == nullptr ? kNone_ : *elements_; }
  [[gnu::noinline]] void take_own() {
    elements_ = elements_ == nullptr ? std::make_shared<std::vector<T>>()
                                     : std::make_shared<std::vector<T>>(*elements_);
  }

  inline static const std::vector<T> kNone_;

  std::shared_ptr<std::vector<T>> elements_;
};

}  // namespace lockstep::trace
