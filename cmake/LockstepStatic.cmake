# The program of the wheel: it is linked statically, so that it needs nothing of the machine that it
# runs on but a Linux kernel. (What it is made of: docs/packages.md.)
#
# Debian ships simdjson and fmt as shared libraries only. simdjson is compiled from the source package
# of the same version (LOCKSTEP_SIMDJSON_SOURCE, the folder with simdjson.cpp; scripts/package fetches
# it), fmt from its own headers. Included before anything is looked for.

include_guard(GLOBAL)

set(LOCKSTEP_SIMDJSON_SOURCE "" CACHE PATH "The folder of simdjson.cpp, for LOCKSTEP_STATIC")
if(NOT EXISTS ${LOCKSTEP_SIMDJSON_SOURCE}/simdjson.cpp)
  message(FATAL_ERROR "LOCKSTEP_STATIC needs LOCKSTEP_SIMDJSON_SOURCE; scripts/package sets both")
endif()

set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(CMAKE_EXE_LINKER_FLAGS "${CMAKE_EXE_LINKER_FLAGS} -static -Wl,--gc-sections")

# The names that find_package() would define: it leaves alone what exists.
add_library(lockstep_simdjson STATIC ${LOCKSTEP_SIMDJSON_SOURCE}/simdjson.cpp)
target_compile_definitions(lockstep_simdjson PUBLIC SIMDJSON_THREADS_ENABLED=1)
add_library(simdjson::simdjson ALIAS lockstep_simdjson)

# What fmt's library holds: its source file is not in Debian's package, and says no more than this.
file(WRITE ${CMAKE_BINARY_DIR}/fmt_format.cc [[
#include <fmt/format-inl.h>
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API locale_ref::locale_ref(const std::locale& loc);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void vformat_to(buffer<char>&, string_view,
                                 basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
]])
add_library(lockstep_fmt STATIC ${CMAKE_BINARY_DIR}/fmt_format.cc)
target_compile_definitions(lockstep_fmt PUBLIC FMT_SHARED)
add_library(fmt::fmt ALIAS lockstep_fmt)
add_library(fmt::fmt-header-only ALIAS lockstep_fmt)

find_library(yaml_cpp_archive yaml-cpp REQUIRED)
add_library(yaml-cpp STATIC IMPORTED GLOBAL)
set_target_properties(yaml-cpp PROPERTIES IMPORTED_LOCATION ${yaml_cpp_archive})

# Of libarchive only what reads tar, zip, xz and zstd is linked: not its reader of xar, and with it
# neither libxml2 nor the 30 MB of Unicode data that that needs.
find_package(LibArchive REQUIRED)
foreach(library IN ITEMS nettle lzma zstd bz2 z)
  find_library(${library}_archive ${library} REQUIRED)
  set_property(TARGET LibArchive::LibArchive APPEND PROPERTY
    INTERFACE_LINK_LIBRARIES ${${library}_archive})
endforeach()

# SQLite's archive does not say what it needs.
find_package(SQLite3 REQUIRED)
set_property(TARGET SQLite::SQLite3 APPEND PROPERTY INTERFACE_LINK_LIBRARIES m)
