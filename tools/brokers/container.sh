#!/bin/sh
# What the image of tools/image runs: format /data for the settings in SERVER_PROPERTIES, then become the broker.
set -eu

properties=/tmp/server.properties
if [ -z "${SERVER_PROPERTIES:-}" ]; then
    SERVER_PROPERTIES='process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.dirs=/data'
fi
echo "$SERVER_PROPERTIES" >$properties

java="/opt/java/bin/java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms32m -Xmx320m -Djava.net.preferIPv4Stack=true
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp /kafka/*"
# No word of $java has a space in it; `set -f` keeps the shell from spelling out the class path's star.
set -f
$java kafka.tools.StorageTool format --ignore-formatted -t a3dpcmUta2Fma2EtdGVzdA -c $properties
exec $java kafka.Kafka $properties
