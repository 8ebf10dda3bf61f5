// Writes markers of kafka-mq-go's format as Go's Protocol Buffers library encodes them, as JSON lines on stdout; with the
// argument "read" it writes what that library reads in the markers on stdin, one in hexadecimal digits on each line.
//
// go run . > ../../../tests/queue/go_markers.jsonl
//
// The message types are built at run time from the field numbers of the format, so that no generated code is needed.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

type marker struct {
	Type      int32  `json:"type"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	After     uint64 `json:"redeliver_after_ms"`
	Key       string `json:"key"`
	Value     string `json:"value_hex"`
	Bytes     string `json:"bytes_hex"`
}

func field(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, typeName string) *descriptorpb.FieldDescriptorProto {
	label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
	made := &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Number: proto.Int32(number), Type: &kind, Label: &label}
	if typeName != "" {
		made.TypeName = proto.String(typeName)
	}
	return made
}

func enum(name string, values ...string) *descriptorpb.EnumDescriptorProto {
	made := &descriptorpb.EnumDescriptorProto{Name: proto.String(name)}
	for number, value := range values {
		made.Value = append(made.Value, &descriptorpb.EnumValueDescriptorProto{Name: proto.String(value), Number: proto.Int32(int32(number))})
	}
	return made
}

func descriptors() (protoreflect.MessageDescriptor, error) {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("marker.proto"), Package: proto.String("q"), Syntax: proto.String("proto3"),
		EnumType: []*descriptorpb.EnumDescriptorProto{enum("Version", "V1"), enum("Type", "START", "END", "KEEPALIVE")},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("MessageID"), Field: []*descriptorpb.FieldDescriptorProto{
				field("partition", 1, descriptorpb.FieldDescriptorProto_TYPE_INT32, ""),
				field("offset", 2, descriptorpb.FieldDescriptorProto_TYPE_INT64, ""),
			}},
			{Name: proto.String("Marker"), Field: []*descriptorpb.FieldDescriptorProto{
				field("version", 1, descriptorpb.FieldDescriptorProto_TYPE_ENUM, ".q.Version"),
				field("type", 2, descriptorpb.FieldDescriptorProto_TYPE_ENUM, ".q.Type"),
				field("message_id", 3, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".q.MessageID"),
				field("redeliver_after_ms", 4, descriptorpb.FieldDescriptorProto_TYPE_UINT64, ""),
				field("key", 5, descriptorpb.FieldDescriptorProto_TYPE_BYTES, ""),
				field("value", 6, descriptorpb.FieldDescriptorProto_TYPE_BYTES, ""),
			}},
		},
	}
	built, err := protodesc.NewFile(file, nil)
	if err != nil {
		return nil, err
	}
	return built.Messages().ByName("Marker"), nil
}

func read(kind protoreflect.MessageDescriptor) {
	fields, output := kind.Fields(), json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, err := hex.DecodeString(lines.Text())
		if err != nil {
			panic(err)
		}
		message := dynamicpb.NewMessage(kind)
		if err := proto.Unmarshal(data, message); err != nil {
			panic(err)
		}
		identity := message.Get(fields.ByName("message_id")).Message()
		inner := identity.Descriptor().Fields()
		if err := output.Encode(marker{
			int32(message.Get(fields.ByName("type")).Enum()),
			int32(identity.Get(inner.ByName("partition")).Int()),
			identity.Get(inner.ByName("offset")).Int(),
			message.Get(fields.ByName("redeliver_after_ms")).Uint(),
			string(message.Get(fields.ByName("key")).Bytes()),
			hex.EncodeToString(message.Get(fields.ByName("value")).Bytes()),
			lines.Text(),
		}); err != nil {
			panic(err)
		}
	}
}

func main() {
	kind, err := descriptors()
	if err != nil {
		panic(err)
	}
	if len(os.Args) > 1 && os.Args[1] == "read" {
		read(kind)
		return
	}
	fields := kind.Fields()
	large := make([]byte, 300)
	for at := range large {
		large[at] = byte(at)
	}
	output := json.NewEncoder(os.Stdout)
	for _, one := range []marker{
		{0, 3, 300, 10_000, "jobs", hex.EncodeToString([]byte("hi")), ""},
		{1, 3, 300, 0, "", "", ""},
		{2, 3, 300, 10_000, "", "", ""},
		{0, 0, 0, 1, "", "", ""},
		{1, 0, 1 << 40, 0, "", "", ""},
		{0, math.MaxInt32, math.MaxInt64, math.MaxInt64, "büro", hex.EncodeToString(large), ""},
		{0, 7, 127, 43_200_000, "jobs", "00", ""},
		{2, -1, -1, 0, "", "", ""},
	} {
		message := dynamicpb.NewMessage(kind)
		identity := dynamicpb.NewMessage(fields.ByName("message_id").Message())
		inner := identity.Descriptor().Fields()
		identity.Set(inner.ByName("partition"), protoreflect.ValueOfInt32(one.Partition))
		identity.Set(inner.ByName("offset"), protoreflect.ValueOfInt64(one.Offset))
		message.Set(fields.ByName("type"), protoreflect.ValueOfEnum(protoreflect.EnumNumber(one.Type)))
		message.Set(fields.ByName("message_id"), protoreflect.ValueOfMessage(identity))
		message.Set(fields.ByName("redeliver_after_ms"), protoreflect.ValueOfUint64(one.After))
		value, _ := hex.DecodeString(one.Value)
		message.Set(fields.ByName("key"), protoreflect.ValueOfBytes([]byte(one.Key)))
		message.Set(fields.ByName("value"), protoreflect.ValueOfBytes(value))
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		if err != nil {
			panic(err)
		}
		one.Bytes = hex.EncodeToString(data)
		if err := output.Encode(one); err != nil {
			panic(err)
		}
	}
}
