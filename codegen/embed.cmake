# embed.cmake -- turns a source file into a C array of lines: cmake -DIN= -DOUT= -DNAME= -DHEADER= -P
# Parts that follow another in the generated unit do without their includes.
file(READ ${IN} text)
if(NAME STREQUAL prelude_philox OR NAME STREQUAL prelude_math)
  string(REGEX REPLACE "#include [^\n]*\n" "" text "${text}")
endif()
string(REPLACE "\\" "\\\\" text "${text}")
string(REPLACE "\"" "\\\"" text "${text}")
string(REPLACE "\n" "\\n\",\n\"" text "${text}")
get_filename_component(source ${IN} NAME)
file(WRITE ${OUT} "/* from ${source} */\n#include \"${HEADER}\"\n"
     "const char *const ${NAME}[] = {\n\"${text}\", NULL};\n")
