"""Words of everyday text and of identifiers: splitting, stems, stop words, English synonyms, translations into English.

General language only: no tool or server is known here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from bot.domain.lazy_pattern import lazy_pattern

UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts written without spaces, or with particles attached to words: Thai to Korean, as a regex character class."""

_COMMON = """
    a about after again all also am an and any anything are as at be been before but by can can't could d did didn't do
    does doesn't doing don't dont each every for from going had has have hello hey hi how i i'd i'll i'm i've if in into
    is isn't it its just kindly let ll may me might more my need no not now of ok okay on one or our out over please s
    same shall should so some something still t than thank thanks that the their them then there these they they're this
    those to too tool tools up us ve via want was we we're were what when where which who whose will with won't would
    you you're your
"""
STOP_WORDS = frozenset(_COMMON.split())
"""English words that say little about the subject of a text."""

_WORD = lazy_pattern(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+(?:['\u2019][^\W_{UNSPACED}]+)*")
_IS_UNSPACED = lazy_pattern(rf"[{UNSPACED}]")
_CAMEL = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWEL = lazy_pattern(r"[aeiouy]")
_LONGEST_WORD = 40
"""Characters of a word that are compared."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its place in a text. `base` is its lower-case form without a possessive ending."""

    text: str
    base: str
    start: int
    end: int

    @property
    def is_stop_word(self) -> bool:
        """True for a word in STOP_WORDS, such as an article."""
        return self.base in STOP_WORDS

    @property
    def is_unspaced(self) -> bool:
        """True for text in one of the scripts of UNSPACED."""
        return _IS_UNSPACED.match(self.text) is not None

    @property
    def stem(self) -> str:
        """The base without inflection endings, see `stem`."""
        return stem(self.base)

    @property
    def terms(self) -> list[str]:
        """The terms to compare: the stem, or each pair of neighboring characters of an unspaced script."""
        if not self.is_unspaced:
            return [self.stem]
        return [self.text[n : n + 2] for n in range(max(1, len(self.text) - 1))]


def words(text: str) -> Iterator[Word]:
    """Yield the words of a text in order. A run of an unspaced script is one word."""
    for match in _WORD.finditer(text):
        base = match.group().casefold().replace("\u2019", "'").removesuffix("'s")[:_LONGEST_WORD]
        yield Word(match.group(), base, match.start(), match.end())


def split_identifier(name: str) -> str:
    """Return an identifier with a space between its camel-case parts: `getUserByID` becomes `get User By ID`."""
    return _CAMEL.sub(" ", name)


def terms(text: str) -> Iterator[str]:
    """Yield the terms of a text or an identifier in order, without stop words."""
    for word in words(split_identifier(text)):
        if not word.is_stop_word:
            yield from word.terms


def stem(word: str) -> str:
    """Return the word without inflection endings, for comparison only: `policies` and `policy` become equal, and so do
    `scheduling`, `scheduled` and `schedule`, or `deletion` and `delete`.
    """
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed", "ion"):
        root = word.removesuffix(ending)
        if root == word or len(root) < 3 or not _VOWEL.search(root) or word.endswith("eed"):
            continue
        if ending == "ion" and root[-1] not in "ts":
            continue
        word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
        break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


_SYNONYM_GROUPS = """
    create add new make open register record insert draft write log file raise
    delete remove erase drop discard destroy purge clear
    list show enumerate overview display
    get fetch read retrieve show view look open display tell check see
    find search query look locate seek
    update edit change modify revise adjust set alter correct
    send post deliver mail submit
    start run launch trigger begin execute
    stop end halt cancel abort terminate kill
    close finish complete resolve done
    copy duplicate clone
    move transfer relocate
    upload attach put
    download export
    share grant give invite allow
    assign delegate owner hand
    approve accept confirm
    reject decline refuse deny
    restore recover undo revert rollback
    merge combine join
    schedule plan book reserve arrange
    convert translate transform turn
    compute calculate count sum total
    compare diff difference
    subscribe follow watch
    mute silence suppress snooze
    comment reply respond answer remark
    rename title name call
    tag label category mark
    summarize summary digest
    check verify validate test
    issue ticket bug task defect problem
    message mail email letter
    meeting event appointment
    person user member people employee colleague staff
    contact lead person
    team group department
    file document doc attachment
    folder directory
    picture image photo screenshot
    page article
    customer client account company
    invoice bill receipt
    payment charge money pay
    refund reimburse
    order purchase buy
    price cost fare
    product item goods
    stock inventory
    holiday vacation leave absence off
    salary wage payroll pay
    repository repo
    commit change
    release deployment deploy rollout ship
    server machine host instance
    error exception crash failure
    alert alarm warning incident outage
    metric measurement statistic
    chart graph plot diagram
    trip travel journey
    hotel room accommodation
    address place location
    route direction way
    password secret credential
    permission right access role
    deadline due
    chat channel
    link url
    person people
    version revision history
    free available availability
    delivery shipment parcel package
    discount coupon voucher
    select choose pick option
    type enter fill input
    site website web page
    computer disk machine local
    memory ram
    automation workflow flow
    agenda calendar
    picture screenshot capture
    audio recording voice speech
    transcribe transcript
    build pipeline ci
    cluster kubernetes
    slow performance latency
    password credential leak
    cause reason explain why
    bookmark favorite favourite star
    structure tree layout hierarchy
    size big large
    vote poll survey
    boss supervisor hierarchy
    sell sale revenue
    earn revenue income
    basket cart
    print write output log
    rename move
    switch toggle turn enable activate
    disable deactivate
    replace overwrite
    maintenance repair
    weather rain temperature sun
    spend work hour
    yaml manifest
    hide redact mask
    scan recognize ocr
    half size resize
    urgent escalate priority
    junk spam
    lawyer legal
"""
"""Groups of synonyms, one a line. A word may be in several. General language only, without tools or servers."""

_TRANSLATIONS = """
    create: erstell anleg angelegt erzeug eroffn cre crear criar aanma maken schrijf ajoute 作成 作っ 作る 新規
        创建 新建 만들 생성 созда
    add: hinzufug anadir anade agreg agrega adicion ajout aggiung toevoeg 追加 添加 추가 добав
    delete: losch entfern elimin borrar borra suppr supprim efface cancell exclu apag verwijder 削除 消し 消す
        删除 삭제 удал
    list: auflist liste lista listar lister elenc lijst 一覧 リスト 列表 列出 목록 список
    show: zeig anzeig mostr ensen montr affich visualizz toon laat 表示 見せ 見たい 教え 显示 查看 보여 покаж
    read: lesen lies gelesen leer lee lire lis legg ler lezen 読む 読み 読ん 阅读 读取 읽 чита
    find: finden finde gefunden encontr trouv trova vind 見つけ 找 찾
    search: such durchsuch busc cherch recherch cerc procur pesquis zoek 検索 探し 探す 搜索 查找 검색 поиск найд
    update: aktualisier actualiz mettre mets aggiorn atualiz bijwerk 更新 업데이트 обнов
    change: ander geandert umstell cambi modific modifi chang alter wijzig 変更 修正 编辑 修改 변경 измен
    rename: umbenenn renombr renomm rinomin renomear hernoem 改名 名前を変 重命名
    send: send schick verschick versend gesendet envi mand invi spedi verstuur stuur 送信 送っ 送る 送り 发送
        보내 отправ
    reply: antwort beantwort respond respuest repond repons rispond antwoord 返信 返事 回复 답장 ответ
    forward: weiterleit reenvi transfer inoltr doorstuur 転送 转发
    start: start beginn iniciar inicia demarr lanc avvi inici 開始 起動 启动 시작 запус
    run: ausfuhr ejecut execut eseg uitvoer 実行 运行 执行 실행 выполн
    stop: stopp anhalt beend deten parar arret ferma 停止 止め 중지 останов
    close: schliess geschloss cerrar cierra ferm chiud fechar sluit 閉じ 关闭 닫 закр
    open: offn abrir abre ouvr apri 開く 開い 開け 打开 열 откр
    cancel: absag storn abbrech kundig cancel annul resili anul anneler キャンセル 取り消 中止 取消 취소 отмен
    restart: neustart neu reinici redemarr riavvi herstart 再起動 重启 재시작 перезапус
    activate: aktivier einschalt activ activer attiv ativ inschakel 有効 オンに 激活 启用 활성
    deactivate: deaktivier ausschalt abschalt desactiv disattiv desativ uitschakel 無効 オフに 停用 비활성
    book: buch gebucht reserv prenot boek 予約 预订 预约 예약 заброн
    approve: genehmig freigeb freigab aprob approuv valid approv aprov goedkeur 承認 批准 승인 одобр
    request: beantrag anfrag solicit pedir demand richied aanvra 申請 依頼 申请 신청 запрос
    assign: zuweis zugewies asign assign attrib toewijz 割り当 担当 分配 할당 назнач
    share: teilen geteilt freigeb compart partag condivid delen 共有 分享 공유
    upload: hochlad subir sube televers carica enviar uploaden アップロード 上传 업로드 загруз
    download: herunterlad descarg telecharg scarica baixar ダウンロード 下载 다운로드 скача
    copy: kopi copi copia コピー 複製 复制 복사 копир
    move: verschieb mover mueve deplac spost verplaats 移動 移动 이동 перемест
    translate: ubersetz traduc tradui tradu vertaal 翻訳 訳し 翻译 번역 перевод перевед
    summarize: zusammenfass resum resumir riassum samenvat 要約 まとめ 总结 摘要 요약
    compare: vergleich compar confront vergelijk 比較 比较 비교 сравн
    convert: umwandl konvert convert converti 変換 转换 변환
    check: pruf uberpruf kontroll comprob verific verifi control 確認 チェック 检查 확인 провер
    restore: wiederherstell restaur recuper ripristin herstel 復元 戻し 恢复 복원 восстанов
    refund: erstatt ruckerstatt reembols devolv devolver rembours rimbors terugbetal 返金 払い戻 退款 환불
    pay: bezahl zahl pagar pag paye betaal 支払 払う 支付 付款 결제 оплат
    payment: zahlung pago pagos paiement pagament betaling 支払い 入金 付款 결제 платеж
    buy: kauf comprar acheter achat acquist kopen 購入 買う 购买 구매 куп
    schedule: einplan planen program planifi 予定を スケジュール 安排 일정
    invite: einlad eingelad invit convid uitnodig 招待 邀请 초대 приглас
    comment: kommentar comentari commentair commento コメント 评论 댓글 коммент
    correct: korrigier korrektur correg corrig correg 校正 直し 纠正
    click: klick anklick clic cliqu クリック 点击 클릭
    write: schreib geschrieb escrib ecri scriv 書く 書い 書き 写 쓰
    edit: bearbeit editar editer modific bewerk 編集 编辑 편집 редакт
    scale: skalier escal scalare スケール 扩容
    export: exportier exportar exporter esport エクスポート 导出 내보내
    import: importier importar importer インポート 取り込 导入 가져
    merge: zusammenfuhr fusion combin マージ 統合 合并 병합
    count: zahlen anzahl contar compter 数え 件数 计数
    mail email: mail e-mail post correo courriel mails messagerie posta メール 邮件 이메일 메일 почт письм
    message: nachricht mensaj messagg mensag bericht メッセージ 消息 信息 메시지 сообщен
    attachment: anhang adjunt piec allegat anexo bijlage 添付 附件 첨부
    calendar: kalender calendari calendrier カレンダー 日历 캘린더 календар
    event: termin veranstalt event evento eventi evenement 予定 イベント 事件 活动 日程 일정 событи
    meeting: besprech sitzung meeting reunion riunion reuniao vergader 会議 打ち合わせ ミーティング 会议 회의 встреч
    appointment: termin cita rendez appuntament afspraak アポ 约会 예약
    room: raum zimmer sala salle stanza kamer 会議室 部屋 会议室 房间 회의실 комнат
    free: frei libre libero livre vrij 空き 空いて 空闲 빈
    slot: lucke zeitfenster hueco creneau 空き時間 时段
    reminder: erinner recordator rappel promemoria lembret herinner リマインダー 提醒 알림 напомин
    task: aufgabe tarea tache compito tarefa taak タスク 任务 작업 задач
    issue: ticket vorgang incidenci problem 課題 問題 チケット 问题 工单 이슈 티켓
    bug: fehler bug error bogue bogu バグ 不具合 缺陷 버그 ошибк
    project: projekt proyect projet progett projet プロジェクト 项目 프로젝트 проект
    repository: repositor depot depot repositorio リポジトリ 仓库 저장소 репозитор
    branch: zweig rama branche ブランチ 分支
    release: veroffentlich version lanzamient livraison rilasci リリース 发布 릴리스
    deployment: bereitstell ausroll desplieg despleg deploiement produktion production デプロイ 部署 배포
    cluster: cluster cluster grappe クラスタ 集群
    pod: pod ポッド
    container: container contenedor conteneur コンテナ 容器 컨테이너
    node: knoten nodo noeud nœud ノード 节点 노드
    replica: replik replica
    resource: ressourc recurs risors recurso リソース 资源 자원
    log: protokoll registro journ ログ 日志 로그 журнал
    error: fehler fallo erreur errore erro エラー 错误 오류 ошибк
    alert: alarm warnung alert alerta avviso アラート 警報 警报 알림
    incident: vorfall storung incident incidente 障害 インシデント 事故 故障 장애
    metric: metrik messwert metric metriq メトリクス 指标
    service: dienst servici servizi servico サービス 服务 서비스 сервис
    server: server servidor serveur サーバー 服务器 서버 сервер
    file: datei archivo ficher fichier arquivo bestand ファイル 文件 파일 файл
    folder: ordner carpeta dossier cartell pasta フォルダ 文件夹 폴더 папк
    directory: verzeichnis directori repertoire ディレクトリ 目录
    document: dokument document documento 文書 文章 資料 ドキュメント 文档 문서 документ
    text: text texto texte testo tekst テキスト 文章 文本 텍스트 текст
    page: seite pagin ページ 页面 页 페이지 страниц
    tab: registerkart reiter pestan onglet scheda タブ 标签页 탭
    button: schaltflache knopf boton bouton pulsant botao ボタン 按钮 버튼 кнопк
    screenshot: bildschirmfoto captura capture schermat スクリーンショット 截图 스크린샷 снимок
    screen: bildschirm pantall ecran schermo 画面 屏幕
    picture image: bild imagen imagem immagin foto 画像 写真 图片 图像 이미지 изображ
    link: link verknupf enlace lien collegament リンク 链接 링크 ссылк
    database: datenbank bbdd database データベース 数据库 데이터베이스
    table: tabell tabla tabella tabela テーブル 表 테이블 таблиц
    query: abfrag consult requet クエリ 查询 쿼리
    schema: schema esquem スキーマ 模式
    backup: sicherung copia sauvegard copia バックアップ 备份 백업 резерв
    workflow: arbeitsablauf ablauf flujo flux fluss fluxo ワークフロー 工作流 워크플로
    invoice: rechnung factur fattur fatur factuur 請求書 インボイス 发票 账单 청구서 счет
    customer: kund client cliente 顧客 お客 取引先 客户 고객 клиент
    contact: kontakt contact contatt contato 連絡先 联系人 연락처 контакт
    company: firma unternehm empres societ azienda entreprise 会社 企業 公司 회사 компани
    deal: geschaft abschluss negoci affair 商談 取引 交易
    quote: angebot presupuest devis preventiv offerte 見積 报价
    order: bestell auftrag pedid command ordin 注文 订单 주문 заказ
    product: produkt product prodott produto 商品 製品 产品 商品 제품 товар
    price: preis preci prix prezz preco prijs 価格 値段 料金 价格 가격 цен
    stock: bestand lager existenci inventari stocks magazzin 在庫 库存 재고 склад
    subscription: abonnement abo suscripcion suscripci abbonament assinatur 購読 契約 サブスク 订阅 구독 подписк
    discount coupon: rabatt gutschein descuent cupon remise reduction sconto 割引 クーポン 折扣 优惠券 할인
    employee: mitarbeit angestellt emplead employe dipendent funcionari medewerk 社員 従業員 员工 직원 сотрудник
    person: person leut personn kolleg coleg collegu 人 担当者 同事
    vacation: urlaub ferien vacacion conge vacanc ferie ferias vakantie 休暇 有給 休み 休假 假期 휴가 отпуск
    absence: abwesen ausenci absenc assenz 欠勤 不在
    payslip: gehalt lohn abrechnung nomina bulletin salaire bustapag 給与 給料 工资 급여 зарплат
    expense: spesen auslag gasto frais spese despes 経費 出張費 报销 费用 경비 расход
    candidate: bewerb candidat 候補者 応募 候选人
    flight: flug vuelo vol volo voos vlucht フライト 航空券 飛行機 航班 机票 비행 рейс
    hotel: hotel unterkunft ホテル 宿 酒店 宾馆 호텔 гостиниц отел
    train: zug zugverbind bahn tren treno trein 電車 列車 新幹線 火车 기차 поезд
    car: auto mietwagen coche voiture macchin 車 レンタカー 租车 자동차
    trip: reis viaj voyag viaggi deplacement viagem 旅行 出張 旅游 여행 поездк
    ticket: fahrkart billet bigliett チケット 票
    weather: wetter tiempo clima meteo temps tempo weer 天気 天气 날씨 погод
    forecast: vorhersag prevision previsio prognos 予報 予測 预报 예보 прогноз
    today: heut hoy aujourd oggi hoje vandaag 今日 今天 오늘 сегодня
    traffic: verkehr stau trafic traffic circulation 渋滞 交通 교통 пробк
    route direction: weg rout ruta itinerair percors 経路 道順 ルート 路线 길
    address: adress direccion indirizz endereco 住所 地址 주소 адрес
    time: zeit uhrzeit hora heure 時間 時刻 时间 시간 врем
    channel: kanal canal canale チャンネル 频道 채널 канал
    direct: direkt directo direct diretto ダイレクト 直接
    status: status estado etat stato ステータス 状況 状態 状态 상태 статус
    user: benutz nutzer usuari utilisateur utent gebruiker ユーザー 利用者 用户 사용자 пользоват
    permission: berechtig permis autorisation permess 権限 许可 权限 권한 прав
    password secret: passwort kennwort contrasen motdepass パスワード 秘密 密码 비밀번호 парол
    report: bericht informe rapport relazion レポート 報告 报告 보고서 отчет
    version: version versione バージョン 版 版本 버전 верси
    grammar: grammati rechtschreib ortograf orthograph 文法 スペル 语法 문법
    language: sprach idioma langue lingua 言語 语言 언어 язык
    speech: sprach voz parole voix 音声 语音 음성
    dashboard: dashboard tablero tableau ダッシュボード 仪表板
    review: uberpruf bewertung resen avis revis レビュー 评论 审查 리뷰
    note: notiz nota notes メモ ノート 笔记 메모 заметк
    command: befehl comando commande コマンド 命令 명령
    key: taste tecla touche キー 键
    variable: variabl 変数 变量 변수
    environment: umgebung entorn environnement 環境 环境 환경
    code: quelltext codigo コード 代码 코드
    network: netzwerk red reseau ネットワーク 网络
    local: lokal local locale ローカル 本地
    balance: saldo kontostand solde 残高 残り 余额 잔액
"""
"""English words, and after the colon their translations as beginnings of words without accents: German, Spanish,
French, Italian, Portuguese, Dutch, Japanese, Chinese, Korean, Russian. General language of work and computers.
"""

_SHORT = 4
"""Characters of a beginning below which it stands for few endings only: `cre` for `crear`, not for `credential`."""
_SHORT_ENDING, _LONG_ENDING = 3, 7
_COMPOUND = 5
"""Characters from which a translation is found inside of another word, as in German compounds."""


def fold_accents(text: str) -> str:
    """Return the text without accents: `réserver` and `reserver` become equal. Kana and Hangul stay whole."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(mark for mark in decomposed if not "\u0300" <= mark <= "\u036f"))


def _synonyms() -> dict[str, tuple[str, ...]]:
    synonyms: dict[str, dict[str, None]] = {}
    for line in _SYNONYM_GROUPS.splitlines():
        group = [stem(word) for word in line.split()]
        for word in group:
            synonyms.setdefault(word, {}).update((other, None) for other in group if other != word)
    return {word: tuple(others) for word, others in synonyms.items()}


SYNONYMS = _synonyms()
"""Synonyms by stem."""


def _read_translations() -> dict[str, tuple[str, ...]]:
    translations: dict[str, dict[str, None]] = {}
    heads: list[str] = []
    for line in _TRANSLATIONS.splitlines():
        english, separator, others = line.rpartition(":")
        if separator:
            heads = [stem(word) for word in english.split()]
        for word in others.split():
            translations.setdefault(fold_accents(word.casefold()), {}).update(dict.fromkeys(heads))
    return {beginning: tuple(stems) for beginning, stems in translations.items()}


_BY_BEGINNING = _read_translations()
TRANSLATED = frozenset(_BY_BEGINNING)
"""Beginnings of words in other languages that have a translation, without accents."""
_BY_LENGTH = sorted(_BY_BEGINNING, key=lambda beginning: (-len(beginning), beginning))


@lru_cache(maxsize=4096)
def _translate(base: str, *, unspaced: bool) -> tuple[str, ...]:
    terms: dict[str, None] = {}
    rest = base
    for beginning in _BY_LENGTH:
        at = rest.find(beginning)
        if at < 0 or not (unspaced or _is_form(rest, beginning, at)):
            continue
        terms.update(dict.fromkeys(_BY_BEGINNING[beginning]))
        # A blank keeps the parts apart, and nothing inside of a longer match is translated again.
        rest = rest.replace(beginning, " " * len(beginning))
    return tuple(terms)


def _is_form(word: str, beginning: str, at: int) -> bool:
    if len(beginning) >= _COMPOUND:
        return at == 0 or len(word) - len(beginning) >= 3
    ending = _SHORT_ENDING if len(beginning) < _SHORT else _LONG_ENDING
    return at == 0 and len(word) <= len(beginning) + ending


def translate(word: Word) -> Iterator[str]:
    """Yield the stems of the English words that a word in another language may stand for, those of a compound, too."""
    yield from _translate(fold_accents(word.base), unspaced=word.is_unspaced)
