# embed.cmake -- the device files as a table of texts (ir/device.h): cmake "-DIN=FILE;FILE" -DOUT= -P
set(table "")
foreach(path ${IN})
  file(READ ${path} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n\"" text "${text}")
  get_filename_component(name ${path} NAME_WE)
  string(APPEND table "{\"${name}\",\n\"${text}\"},\n")
endforeach()
file(WRITE ${OUT} "/* from devices/ */\n#include \"ir/device.h\"\n"
     "const DeviceText device_texts[] = {\n${table}{0, 0}};\n")
