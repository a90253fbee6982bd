# The shared library for programs in C and C++, and what `cmake --install` puts where: the command, the library, its headers, and the files
# by which find_package(plimsoll) and pkg-config find them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(PLIMSOLL_SHARED)
  add_library(plimsoll_library SHARED ${PLIMSOLL_C_SOURCES})
  target_link_options(plimsoll_library PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/api/c/exports.map -Wl,--no-undefined)
else()
  add_library(plimsoll_library STATIC ${PLIMSOLL_C_SOURCES})
endif()
set_target_properties(plimsoll_library PROPERTIES OUTPUT_NAME plimsoll EXPORT_NAME plimsoll VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON LINK_DEPENDS ${CMAKE_SOURCE_DIR}/src/api/c/exports.map)
target_include_directories(plimsoll_library INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
  PRIVATE ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(plimsoll_library PRIVATE $<BUILD_INTERFACE:plimsoll_core>)

set(PLIMSOLL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll)
install(TARGETS plimsoll RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Manual pages and completions, made by the command itself from what it parses.
set(PLIMSOLL_GENERATED ${CMAKE_BINARY_DIR}/generated)
add_custom_command(TARGET plimsoll POST_BUILD COMMAND plimsoll man --all ${PLIMSOLL_GENERATED}/man1
  COMMAND plimsoll completion bash > ${PLIMSOLL_GENERATED}/plimsoll.bash COMMAND plimsoll completion zsh > ${PLIMSOLL_GENERATED}/_plimsoll
  COMMAND plimsoll completion fish > ${PLIMSOLL_GENERATED}/plimsoll.fish VERBATIM)
install(DIRECTORY ${PLIMSOLL_GENERATED}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${PLIMSOLL_GENERATED}/plimsoll.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME plimsoll)
install(FILES ${PLIMSOLL_GENERATED}/_plimsoll DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PLIMSOLL_GENERATED}/plimsoll.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${PLIMSOLL_SCHEMA_FILES} DESTINATION ${CMAKE_INSTALL_DATADIR}/plimsoll/schemas)
# The Python package, which `plimsoll capture` runs in the environment of the user's script.
if(EXISTS ${CMAKE_SOURCE_DIR}/python/plimsoll)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/plimsoll DESTINATION ${CMAKE_INSTALL_DATADIR}/plimsoll/python
          PATTERN __pycache__ EXCLUDE PATTERN .mypy_cache EXCLUDE)
endif()
if(TARGET plimsoll-measure)
  install(TARGETS plimsoll-measure RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(NOT PLIMSOLL_SHARED)
  return()
endif()
install(TARGETS plimsoll_library EXPORT plimsoll_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/plimsoll.h ${CMAKE_SOURCE_DIR}/include/plimsoll.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT plimsoll_targets NAMESPACE plimsoll:: DESTINATION ${PLIMSOLL_CMAKE_DIR} FILE plimsoll-config.cmake)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/plimsoll-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/plimsoll-config-version.cmake DESTINATION ${PLIMSOLL_CMAKE_DIR})

# The prefix as seen from where the .pc file is, so that an installation can be moved.
file(RELATIVE_PATH PLIMSOLL_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_SOURCE_DIR}/cmake/plimsoll.pc.in ${CMAKE_BINARY_DIR}/generated/plimsoll.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/plimsoll.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
