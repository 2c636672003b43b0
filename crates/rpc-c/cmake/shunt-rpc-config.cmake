# find_package(shunt-rpc): the static library shunt::rpc, the shared one shunt::rpc-shared, and shunt_rpc_sources(TARGET [SHARED] FILE.x...), which
# adds to a target what shunt-rpcgen makes of definitions, and the library. Found where it was installed, or in a clone that was built: -Dshunt-rpc_DIR=CLONE/crates/rpc-c/cmake.
cmake_minimum_required(VERSION 3.13)
get_filename_component(_shunt_up3 "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_shunt_places "${_shunt_up3}/bin" "${_shunt_up3}/lib/shunt" "${_shunt_up3}/include/shunt"
    "${_shunt_up3}/target/release" "${CMAKE_CURRENT_LIST_DIR}/../include")

find_program(SHUNT_RPCGEN shunt-rpcgen HINTS ${_shunt_places})
find_library(SHUNT_RPC_LIBRARY NAMES libshunt_rpc_c.a HINTS ${_shunt_places})
find_library(SHUNT_RPC_SHARED_LIBRARY NAMES libshunt_rpc_c.so HINTS ${_shunt_places})
find_path(SHUNT_RPC_INCLUDE shunt_rpc.h HINTS ${_shunt_places})
foreach(_shunt_part SHUNT_RPCGEN SHUNT_RPC_LIBRARY SHUNT_RPC_SHARED_LIBRARY SHUNT_RPC_INCLUDE)
    if(NOT ${_shunt_part})
        set(shunt-rpc_FOUND FALSE)
        set(shunt-rpc_NOT_FOUND_MESSAGE "${_shunt_part} is missing: cargo build --release -p shunt-rpcgen -p shunt-rpc-c in the clone makes it")
        return()
    endif()
endforeach()

if(NOT TARGET shunt::rpc)
    find_package(Threads REQUIRED)
    add_library(shunt::rpc STATIC IMPORTED)
    set_target_properties(shunt::rpc PROPERTIES
        IMPORTED_LOCATION "${SHUNT_RPC_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${SHUNT_RPC_INCLUDE}"
        INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
    add_library(shunt::rpc-shared SHARED IMPORTED)
    set_target_properties(shunt::rpc-shared PROPERTIES
        IMPORTED_LOCATION "${SHUNT_RPC_SHARED_LIBRARY}"
        IMPORTED_SONAME libshunt_rpc_c.so
        INTERFACE_INCLUDE_DIRECTORIES "${SHUNT_RPC_INCLUDE}")
endif()

function(shunt_rpc_sources target)
    cmake_parse_arguments(PARSE_ARGV 1 shunt "SHARED" "" "")
    foreach(file ${shunt_UNPARSED_ARGUMENTS})
        get_filename_component(path "${file}" ABSOLUTE)
        get_filename_component(name "${file}" NAME_WE)
        set(base "${CMAKE_CURRENT_BINARY_DIR}/${name}")
        add_custom_command(OUTPUT "${base}.h" "${base}.c"
            COMMAND "${SHUNT_RPCGEN}" --c "${path}" --output "${base}"
            DEPENDS "${path}" "${SHUNT_RPCGEN}" VERBATIM)
        target_sources(${target} PRIVATE "${base}.h" "${base}.c")
    endforeach()
    target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}")
    if(shunt_SHARED)
        target_link_libraries(${target} PRIVATE shunt::rpc-shared)
    else()
        target_link_libraries(${target} PRIVATE shunt::rpc)
    endif()
endfunction()
