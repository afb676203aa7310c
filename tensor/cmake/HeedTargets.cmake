# How every target of the project is compiled; nothing of this reaches the users of the library.

if(HEED_BUILD_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "heed: the fuzzers need clang (-DCMAKE_CXX_COMPILER=clang++)")
endif()

function(heed_target target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion $<$<BOOL:${HEED_WERROR}>:-Werror>)
  # Two warnings of g++ are wrong about its own library: of "literal" + std::string (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105651)
  # and of a checked std::optional (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=80635). clang, in CI too, sees what is really uninitialized.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-maybe-uninitialized)
  endif()
  if(HEED_SANITIZE)
    # Public, so that whatever links the library links the sanitizer's run time too.
    target_compile_options(${target} PRIVATE -fsanitize=${HEED_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${HEED_SANITIZE})
  endif()
endfunction()

# With HEED_PRECOMPILE, all files of the target begin with these headers, which are compiled once for all targets that have the same name of a set. A build
# from scratch is quicker, but a missing #include goes unnoticed: for builds beside one that has it off.
function(heed_precompile target set)
  if(NOT HEED_PRECOMPILE)
    return()
  endif()
  get_property(first GLOBAL PROPERTY heed_precompiled_${set})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    set_property(GLOBAL PROPERTY heed_precompiled_${set} ${target})
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  # Without the headers' times in it, it can come out of a compiler cache.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()
